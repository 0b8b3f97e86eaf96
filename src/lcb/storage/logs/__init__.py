"""An imported event log in a folder: events, items and categories."""
