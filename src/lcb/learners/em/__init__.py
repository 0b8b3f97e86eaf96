"""Expectation-maximisation: Gaussian rewards, and clicks with a Bernoulli likelihood."""
