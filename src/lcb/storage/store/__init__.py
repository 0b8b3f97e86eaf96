"""The store of the service: SQLite or PostgreSQL, and their migrations."""
