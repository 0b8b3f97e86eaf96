"""Charts of a running service: a report draws them once, a page redraws them as rows arrive."""
