"""What stands beside the items that users took, in a log read as choices: the other candidates, as labels 0.

    on offer    where the log says what was on offer at each event (`lcb log export`), the items that a user was offered
    drawn       elsewhere items drawn at random, without repetition, of those that someone took, so that a user has
                1,000 candidates in all.  Users may never have seen them, and drawn uniformly they are less popular than
                what was taken: popularity and item effects look better than among the items that are really on offer.

Every user has as many candidates, in training and in tests, because the share of zeros sets the level of all rewards.
At most 5,000,000 labels are made, so that with more than 5,000 users each has fewer candidates.
"""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats, Index
from lcb.storage.logs.log import Log
from lcb.storage.logs.offers import Offers

N_CANDIDATES = 1_000
MOST_LABELS = 5_000_000
_FEWEST = 5  # candidates for each item taken, on average


def add_candidates(user: Index, item: Index, log: Log, rng: np.random.Generator) -> tuple[Index, Index, Floats, str]:
    """Return users, items and labels of all candidates, sorted by user, and what they are.

    `user` (n,) and `item` (n,) are what users took, sorted by user, each pair once.
    """
    begin = np.searchsorted(user, np.arange(log.n_users + 1))
    n_takers, most_popular = len(np.unique(user)), np.unique(item)
    n = min(N_CANDIDATES, max(MOST_LABELS // n_takers, _FEWEST * len(item) // n_takers))
    is_own, n_beside_all, is_drawn = np.zeros(log.n_items, bool), 0, False
    users, items, labels = [], [], []
    for u in np.unique(user).tolist():
        own = item[begin[u] : begin[u + 1]]
        pool = most_popular if log.offers is None else find_offered(log.offers, log.start[u], log.start[u + 1])
        n_beside = min(max(n - len(own), 0), len(pool))
        drawn = pool
        if n_beside < len(pool):
            drawn, is_drawn = rng.choice(pool, n_beside, replace=False, shuffle=False), True
        is_own[own] = True
        beside = drawn[~is_own[drawn]]
        is_own[own] = False
        n_beside_all += len(beside)
        users.append(np.full(len(own) + len(beside), u))
        items += [own, beside]
        labels += [np.ones(len(own)), np.zeros(len(beside))]
    made = np.concatenate(users), np.concatenate(items).astype(np.int64), np.concatenate(labels)
    return *made, _describe(n_beside_all / n_takers, n, log.offers is not None, is_drawn)


def find_offered(offers: Offers, first: int, end: int) -> Index:
    """Return the items that were on offer at some of these events."""
    return np.unique(np.concatenate([offers.of_event(e)[0] for e in range(first, end)])).astype(np.int64)


def _describe(n_beside: float, n: int, is_offered: bool, is_drawn: bool) -> str:
    fewer = f" ({n:,} candidates in all, because users are many)" if is_drawn and n < N_CANDIDATES else ""
    if is_offered:
        drawn = f", drawn of them{fewer}," if is_drawn else ""
        return (
            f"read as choices: {n_beside:,.0f} items per user that were on offer{drawn} and not taken stand beside "
            "those taken, as labels 0"
        )
    which = "items drawn at random" if is_drawn else "other items, all that somebody took,"
    return (
        f"read as choices: {n_beside:,.0f} {which} per user stand beside those taken, as labels 0{fewer}; users "
        "may never have seen them, and they are less popular than what was taken: popularity and item effects look "
        "better than they are"
    )
