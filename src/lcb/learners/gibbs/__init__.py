"""Gibbs sampling of the users' classes: `collapsed` (`gibbs.fit`) and `blocked`, with their draws and diagnostics."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
