"""Charts of a running service, which the dashboard redraws as rows arrive."""
