"""The regret bounds of Zhou & Brunskill 2016 (Table 1, Theorems 1 and 2) and the two schedules of the theorems."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
