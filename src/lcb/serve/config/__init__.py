"""Settings of a service: their types and defaults, loading, and the specs of recommenders."""
