"""Algorithms that choose for many users and keep their states: the methods of a bandit, with `user` first."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
