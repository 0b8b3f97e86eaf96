"""Spectral Experts (`spectral.fit`): classes from moments of the rewards."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
