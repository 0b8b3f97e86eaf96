"""Metrics, the operational log, and masking of secrets."""
