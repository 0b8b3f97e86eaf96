"""The version, in the one place that says it."""

__version__ = "0.1.0"
