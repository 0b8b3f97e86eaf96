"""A refit of a mixture in the learning process: statistics of the seated users, read from the log, and new seats."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lcb.arrays import Floats
from lcb.errors import TooFewRows
from lcb.progress import Progress, silent
from lcb.serve.event_ids import slot_of_reward
from lcb.serve.events import floats
from lcb.serve.learn.job import Job, JobResult
from lcb.serve.log.read_service import read_service
from lcb.serve.read_event import read_event
from lcb.serve.state.mixtures import bound_weight
from lcb.serve.state.packed_mixture import pack_mixture, unpack_mixture
from lcb.serve.state.users import User
from lcb.stats import UserStats
from lcb.storage.store.base import Row, Store
from lcb.words import format_count

_BLOCK = 500  # users read at a time


def refit(job: Job, store: Store, progress: Progress = silent) -> JobResult:
    """Draw the seats of all users again and learn the hyperparameters; users erased since then are left out."""
    assert job.mixture is not None
    mixture = unpack_mixture(job.mixture)
    service = read_service(store)
    rows = dict(_read_statistics(store, job.seq, list(mixture.seats), progress))
    if not rows:
        raise TooFewRows("no user is seated any more; wait for others to leave")
    if service.counts_users:
        rows = {seat: bound_weight(row) for seat, row in rows.items()}
    progress("drawing seats", 0, None)
    mixture.refit(rows, np.random.default_rng([*service.seed, job.seq]))  # the same log gives the same seats
    n = sum(number >= 0 for number in mixture.numbers)
    reason = f"{format_count(n, 'class')} of {format_count(len(mixture.seats), 'user')} who have left"
    return JobResult(b"", pack_mixture(mixture), len(mixture.seats), True, reason, None, None)


def _read_statistics(
    store: Store, upto: int, departures: list[int], progress: Progress
) -> Iterator[tuple[int, Floats]]:
    """Yield each departure that was not erased, with the statistics of its user."""
    for n in range(0, len(departures), _BLOCK):
        progress("reading users", n, len(departures))
        users = {}
        for seq in departures[n : n + _BLOCK]:
            row = next(iter(store.events(seq - 1, seq)), None)
            if row is not None and row.user is not None:
                users[row.user] = seq
        for user, found in store.events_of_each(dict.fromkeys(users, 0), upto).items():
            statistics = _sum_rewards(found)
            if statistics is not None:
                yield users[user], statistics


def _sum_rewards(rows: list[Row]) -> Floats | None:
    """Return the statistics of a user's rewards with their final values, for the recommender of the first decision.

    Those of archived rewards are in the user's base row: sums in another order, so the last bits may differ.
    """
    bodies = [(row, read_event(row)) for row in rows]
    begin = max((i for i, row in enumerate(rows) if row.kind == "base"), default=0)
    del bodies[:begin]
    base = User.unpack(bodies[0][1].user).state if rows and rows[begin].kind == "base" else None
    final = {
        slot_of_reward(row.id): (body.x, body.reward)
        for row, body in bodies
        if row.kind == "reward" and body.recommender == bodies[0][1].recommender
    }
    if not final:
        return base if base is not None and base[-1] else None
    x = np.array([floats(one) for one, _ in final.values()])
    reward = np.array([reward for _, reward in final.values()])
    sums = np.ascontiguousarray(UserStats.from_rows(np.zeros(len(x), np.intp), x, reward).packed[:, 0])
    return sums if base is None else base + sums
