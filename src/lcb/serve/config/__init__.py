"""Settings of a service: the settings themselves, how they are loaded, and what a recommender is made of."""
