"""Learns model versions from the log in a child process while the service runs."""
