"""Bandits over a fixed set of arms without features."""
