"""Recommenders side by side: what each one's users did, and how far they are apart.

A user's rate is the rewards per decision; a recommender has the mean and the deviation of its users' rates, as in the
paper's user study.  Differences of means have Welch's interval:

    difference ± t(0.975, df) sqrt(v_a + v_b)            v = deviation^2 / n
    df = (v_a + v_b)^2 / ( v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1) )
"""

from __future__ import annotations

import math

from lcb.serve import messages
from lcb.serve.problems import Problem
from lcb.serve.service import Service
from lcb.serve.world import Tally


def trial(service: Service) -> messages.TrialAnswer:
    """All recommenders, and each but the first against the first."""
    names = _names(service)
    return messages.TrialAnswer(
        [_recommender(service, name) for name in names], _differences(service, [(name, names[0]) for name in names[1:]])
    )


def trial_of(service: Service, name: str) -> messages.TrialAnswer:
    """One recommender, and it against each of the others."""
    names = _names(service)
    if name not in names:
        raise Problem(404, f"no recommender {name!r}; there are: {', '.join(names)}", field="recommender")
    others = [(name, other) for other in names if other != name]
    return messages.TrialAnswer([_recommender(service, name)], _differences(service, others))


def _names(service: Service) -> list[str]:
    """Those of the settings first, then those the log knows from before."""
    now = [one.name for one in service.settings.recommenders]
    return now + [name for name in service.world.recommenders if name not in now]


def _recommender(service: Service, name: str) -> messages.TrialRecommender:
    tally, shares = service.world.tallies.get(name, Tally()), service.desk.shares
    spec = service.world.recommenders[name]
    return messages.TrialRecommender(
        name, spec.bandit, shares.get(name, 0.0) / sum(shares.values()), tally.n_users, tally.n_decisions,
        tally.n_rewards, tally.reward_sum, tally.mean, tally.deviation,
    )  # fmt: skip


def _differences(service: Service, pairs: list[tuple[str, str]]) -> list[messages.Difference]:
    tallies, found = service.world.tallies, []
    for of, to in pairs:
        between = difference(tallies.get(of, Tally()), tallies.get(to, Tally()))
        if between is not None:
            found.append(messages.Difference(of, to, *between))
    return found


def difference(a: Tally, b: Tally, level: float = 0.95) -> tuple[float, float, float] | None:
    """How far a's users are above b's, and the interval; None where either has fewer than two."""
    if a.mean is None or a.deviation is None or b.mean is None or b.deviation is None:
        return None
    from scipy.special import stdtrit

    between, v_a, v_b = a.mean - b.mean, a.deviation**2 / a.n_users, b.deviation**2 / b.n_users
    if v_a + v_b == 0:
        return between, between, between
    share = v_a / (v_a + v_b)
    df = 1 / (share**2 / (a.n_users - 1) + (1 - share) ** 2 / (b.n_users - 1))
    half = float(stdtrit(df, (1 + level) / 2)) * math.sqrt(v_a + v_b)
    return between, between - half, between + half
