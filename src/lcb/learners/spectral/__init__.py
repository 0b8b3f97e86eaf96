"""Spectral Experts (`spectral.fit`): classes from moments of the rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lcb.learners.spectral.experts import fit as fit


def __getattr__(name: str) -> Any:
    if name != "fit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lcb.learners.spectral.experts import fit

    return fit
