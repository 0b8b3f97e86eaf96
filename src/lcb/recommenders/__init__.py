"""Algorithms that choose for many users: the verbs of a bandit, with `user` first.  They keep their users' states."""
