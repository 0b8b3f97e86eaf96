"""Compares the recommenders of a service by the rewards of their users.

A user's rate is the sum of rewards per decision; a decision without a reward counts as 0.  A recommender has the mean
and the standard deviation of its users' rates, as in the paper's user study.  Differences of means have Welch's
interval (`lcb.evaluate.two_groups`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcb import messages
from lcb.serve.config.settings import READER
from lcb.serve.errors import Problem
from lcb.serve.service import Service
from lcb.serve.state.tally import Tally

if TYPE_CHECKING:
    from lcb.evaluate.two_groups import Group

_SHADOW = (
    "in shadow mode callers choose the arms, so these rewards tell nothing about the recommenders; export the log and "
    "run lcb evaluate --method ips"
)


def compare_all(service: Service) -> messages.TrialAnswer:
    """Return all recommenders, and the difference of each to the first."""
    names = _list_names(service)
    summaries = tuple(_summarise(service, name) for name in names)
    return _build_answer(service, summaries, [(name, names[0]) for name in names[1:]])


def compare_one(service: Service, name: str) -> messages.TrialAnswer:
    """Return one recommender, and its difference to each of the others."""
    names = _list_names(service)
    if name not in names:
        raise Problem(404, f"no recommender {name!r}; the recommenders are {', '.join(names)}", field="recommender")
    others = [(name, other) for other in names if other != name]
    return _build_answer(service, (_summarise(service, name),), others)


def _build_answer(
    service: Service, summaries: tuple[messages.TrialRecommender, ...], pairs: list[tuple[str, str]]
) -> messages.TrialAnswer:
    if service.settings.shadow:
        return messages.TrialAnswer(summaries, (), _SHADOW)
    return messages.TrialAnswer(summaries, _compare(service, pairs))


def _list_names(service: Service) -> list[str]:
    """List the recommenders of the settings, then those that only the log has."""
    now = [one.name for one in service.settings.recommenders]
    return now + [name for name in service.world.state.recommenders if name not in now and name != READER]


def _get_tally(service: Service, name: str) -> Tally:
    return service.world.tallies.get(name) or Tally()


def _build_group(service: Service, name: str) -> Group:
    from lcb.evaluate.two_groups import Group  # imports SciPy, which decisions do not need

    tally = _get_tally(service, name)
    return Group.of_sums(tally.n_users, tally.rate_sum, tally.rate_square_sum)


def _summarise(service: Service, name: str) -> messages.TrialRecommender:
    tally, group, shares = _get_tally(service, name), _build_group(service, name), service.assignment.shares
    return messages.TrialRecommender(
        name=name,
        bandit=service.world.state.recommenders[name].bandit,
        share=shares.get(name, 0.0) / sum(shares.values()),
        n_users=tally.n_users,
        n_decisions=tally.n_decisions,
        n_rewards=tally.n_rewards,
        reward_sum=tally.reward_sum,
        mean=group.mean,
        deviation=group.deviation,
    )


def _compare(service: Service, pairs: list[tuple[str, str]]) -> tuple[messages.RecommenderDifference, ...]:
    between = ((of, to, _build_group(service, of).difference_to(_build_group(service, to))) for of, to in pairs)
    return tuple(messages.RecommenderDifference(of, to, *found) for of, to, found in between if found is not None)
