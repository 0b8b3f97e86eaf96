"""Charts of a running service, drawn once in a report and again and again in a page."""
