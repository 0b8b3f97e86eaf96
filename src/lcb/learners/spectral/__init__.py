"""Spectral Experts: classes from moments of the rewards."""
