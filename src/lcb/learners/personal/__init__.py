"""Personal classes: a class is a normal distribution over people, learned by `mixture` (`personal.fit`)."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
