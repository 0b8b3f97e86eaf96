"""Bandits that keep a posterior over the latent classes of one user."""
