"""Reads the log: verify it, export it, show one user's story, compare recommenders."""
