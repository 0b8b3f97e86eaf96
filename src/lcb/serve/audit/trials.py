"""Recommenders side by side: what each one's users did, and how far they are apart.

A user's rate is the rewards per decision; a recommender has the mean and the deviation of its users' rates, as in the
paper's user study. Differences of means have Welch's interval (`lcb.evaluate.two_groups`).  A decision without a reward
counts as one of reward 0.
"""

from __future__ import annotations

from lcb import messages
from lcb.serve.config.settings import READER
from lcb.serve.errors import Problem
from lcb.serve.service import Service
from lcb.serve.state.users import Tally


def trial(service: Service) -> messages.TrialAnswer:
    """All recommenders, and each but the first against the first."""
    names = _names(service)
    return messages.TrialAnswer(
        tuple(_recommender(service, name) for name in names),
        _differences(service, [(name, names[0]) for name in names[1:]]),
    )


def trial_of(service: Service, name: str) -> messages.TrialAnswer:
    """One recommender, and it against each of the others."""
    names = _names(service)
    if name not in names:
        raise Problem(404, f"no recommender {name!r}; there are: {', '.join(names)}", field="recommender")
    others = [(name, other) for other in names if other != name]
    return messages.TrialAnswer((_recommender(service, name),), _differences(service, others))


def _names(service: Service) -> list[str]:
    """Those of the settings first, then those the log knows from before."""
    now = [one.name for one in service.settings.recommenders]
    return now + [name for name in service.world.state.recommenders if name not in now and name != READER]


def _recommender(service: Service, name: str) -> messages.TrialRecommender:
    tally, shares = service.world.tallies.get(name, Tally()), service.assignment.shares
    spec = service.world.state.recommenders[name]
    return messages.TrialRecommender(
        name, spec.bandit, shares.get(name, 0.0) / sum(shares.values()), tally.n_users, tally.n_decisions,
        tally.n_rewards, tally.reward_sum, tally.mean, tally.deviation,
    )  # fmt: skip


def _differences(service: Service, pairs: list[tuple[str, str]]) -> tuple[messages.RecommenderDifference, ...]:
    from lcb.evaluate.two_groups import Group  # brings SciPy, which deciding does without

    def group(name: str) -> Group:
        tally = service.world.tallies.get(name, Tally())
        return Group(tally.n_users, tally.mean, tally.deviation)

    found = []
    for of, to in pairs:
        between = group(of).above(group(to))
        if between is not None:
            found.append(messages.RecommenderDifference(of, to, *between))
    return tuple(found)
