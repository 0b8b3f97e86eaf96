"""Expectation-maximisation: `gaussian` on per-user statistics (`em.fit`), `bernoulli` on counted clicks."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
