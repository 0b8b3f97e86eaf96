"""The commands about a service: serve it, look at its log, ask it while it runs."""
