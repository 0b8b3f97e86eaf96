"""Pages about a person's own data."""
