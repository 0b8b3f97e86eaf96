"""Evaluation over items: the arms are the items that a test user has labels for."""
