"""Gibbs sampling of the users' classes: `collapsed` (`gibbs.fit`) and `blocked`, with their draws and diagnostics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lcb.learners.gibbs.collapsed import fit as fit


def __getattr__(name: str) -> Any:
    if name != "fit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lcb.learners.gibbs.collapsed import fit

    return fit
