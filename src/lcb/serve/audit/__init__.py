"""Reads the log afterwards: verify it, export it, show one user's story, compare recommenders."""
