"""Linear bandits: the reward is linear in the features, with no classes."""
