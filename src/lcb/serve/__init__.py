"""The decision service."""
