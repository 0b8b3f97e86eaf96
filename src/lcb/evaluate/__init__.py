"""How well an algorithm does, in simulated worlds and on logged events; tuning of its settings."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
