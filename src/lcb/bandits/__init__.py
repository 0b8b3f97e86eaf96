"""Algorithms that choose for one user: `start`, `choose`, `update`; the caller keeps the state, one flat array."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
