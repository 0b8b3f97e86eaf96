"""How a running service is observed: metrics, its operational log, and secrets kept out of both."""
