"""Learn latent classes from the log of past users: `fit` runs any learner, each learner has its own room.

em         expectation-maximisation on statistics, of Gaussian rewards or of clicks
gibbs      Gibbs sampling over a Dirichlet process, collapsed or blocked
spectral   Spectral Experts, from moments of rows
shared     what several learners use: starts, the number of classes, compiled log and exp
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lcb.learners.fitting import fit as fit


def __getattr__(name: str) -> Any:
    if name != "fit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lcb.learners.fitting import fit

    return fit
