"""Learners give the same classes from users who are in several places."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.arrays import add_up
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.learners.shared.users import Users, sum_parts

pytestmark = pytest.mark.filterwarnings("ignore::lcb.ConvergenceWarning")
N_USERS, N_PARTS = 900, 16


class Scattered:
    """Users in parts, the parts in several places; sums are added in the order of the parts."""

    def __init__(self, log: EventLog, n_places: int) -> None:
        self.log, self.works = log, []
        for name in ("n_users", "n_events", "n_features", "features", "two_valued", "constant", "arms", "levels"):
            setattr(self, name, getattr(log, name))
        ends = np.linspace(0, log.n_users, N_PARTS + 1).astype(int).tolist()
        self.places = []
        for own in np.array_split(np.arange(N_PARTS), n_places):
            first, last = ends[own[0]], ends[own[-1] + 1]
            parts = [slice(ends[i] - first, ends[i + 1] - first) for i in own.tolist()]
            here = log.take(np.arange(first, last))
            if log.clicks is not None:  # all places know all arms
                here = EventLog(here.stats, self._count(first, last), log.two_valued)
            self.places.append((here, parts, first))

    def _count(self, first, last):
        from dataclasses import replace

        clicks = self.log.clicks
        return replace(clicks, clicked=clicks.clicked[first:last], passed=clicks.passed[first:last])

    def take(self, index):
        return self.log.take(index)

    def sums(self, work):
        self.works.append(type(work).__name__)
        parts = [
            sum_parts(work, here, parts, first, lambda f, xs: list(map(f, xs))) for here, parts, first in self.places
        ]
        return add_up(one for place in parts for one in place)


def draw(*, clicks: bool) -> EventLog:
    rng = np.random.default_rng(0)
    label, user = rng.integers(3, size=N_USERS), np.repeat(np.arange(N_USERS), 8)
    arms = rng.normal(size=(12, 3))
    x = arms[rng.integers(12, size=len(user))]
    mean = (x * rng.normal(size=(3, 3))[label[user]]).sum(axis=1)
    reward = rng.random(len(user)) < 0.5 + 0.4 * np.tanh(mean) if clicks else mean + 2 * rng.normal(size=len(user))
    return EventLog.from_rows(user, x, reward.astype(float))


CASES = {
    "em": (False, {"tol": 1e-12, "max_steps": 40}),
    "em, one variance": (False, {"variance": "shared", "tol": 1e-12, "max_steps": 40}),
    "em on clicks": (True, {}),
    "personal": (False, {"learner": "personal"}),
    "personal, a noise per arm": (True, {"learner": "personal"}),
    "blocked": (False, {"learner": "blocked", "n_sweeps": 12, "n_split_merge": 0, "start": "one"}),
}


@pytest.mark.parametrize("case", CASES)
def test_classes_do_not_depend_on_where_users_are(case):
    clicks, settings = CASES[case]
    log = draw(clicks=clicks)
    one, three = Scattered(log, 1), Scattered(log, 3)
    here, *there = (fit(data, 3, rng=0, **settings) for data in (log, one, three))
    for name in ("pi", "beta", "sigma2"):
        values = [getattr(found.models, name) for found in there]
        np.testing.assert_array_equal(*values)  # the number of places changes no bit
        np.testing.assert_allclose(values[0], getattr(here.models, name), rtol=1e-12, atol=1e-12)
    assert isinstance(one, Users)
    assert len(one.works) == len(three.works) > 5


def test_the_number_of_classes_is_chosen_alike():
    log = draw(clicks=False)
    here, there = (fit(data, rng=1, max_steps=40) for data in (log, Scattered(log, 2)))
    assert here.held_out == there.held_out
    assert here.why == there.why
