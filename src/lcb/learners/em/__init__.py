"""Expectation-maximisation: `gaussian` on per-user statistics (`em.fit`), `bernoulli` on counted clicks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lcb.learners.em.gaussian import fit as fit


def __getattr__(name: str) -> Any:
    if name != "fit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lcb.learners.em.gaussian import fit

    return fit
