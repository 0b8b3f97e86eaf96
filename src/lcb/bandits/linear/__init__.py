"""Linear bandits without classes: the expected reward is linear in the features."""
