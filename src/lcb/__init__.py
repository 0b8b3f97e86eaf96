"""Latent Contextual Bandits."""

__version__ = "0.1.0"
