"""Chooses kind and number of classes and the bonus for a log, on its own users: `choose` and `learn_chosen`."""
