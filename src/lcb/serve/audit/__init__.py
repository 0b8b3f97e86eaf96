"""Reads the log afterwards: verify it, export it, tell one user's story, compare recommenders."""
