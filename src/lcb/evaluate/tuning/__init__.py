"""Finds settings by trying them: in a simulated world, or on the training users of a log."""
