"""The state of single users: what events do to it, what stays in memory, how it is loaded."""
