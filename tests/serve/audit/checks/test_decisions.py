"""What a recomputed decision may differ in."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from lcb.serve.audit.checks.decisions import _check_taken
from lcb.serve.audit.report import Report
from lcb.serve.events import ChosenArm, ServiceBody
from lcb.serve.state.world import World


def count_differences(stored: ChosenArm, again: ChosenArm, *, exact: bool) -> int:
    world, report = World(None), Report()  # type: ignore[arg-type]
    world.state.settings = ServiceBody(0.0, b"", "once", None, None, None, exact=exact)
    _check_taken(world, 7, 2, stored, again, report)
    return len(report.differences)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("mean, n_differences", [(0.9830596582518732, 0), (0.98305966, 1), (None, 1)])
def test_the_mean_beside_an_effect_may_differ_in_its_last_bits_alone(
    mean: float | None, n_differences: int, exact: bool
) -> None:
    stored = ChosenArm(0, "a", 1.0, b"", None, False, None, effect=0.1, mean=0.9830596582518735)
    assert count_differences(stored, msgspec.structs.replace(stored, mean=mean), exact=exact) == n_differences


def arm(p: float, **more: Any) -> ChosenArm:
    return ChosenArm(**({"arm": 0, "id": "a", "x": b"", "at_random": False, "advice": None} | more), propensity=p,
                     distribution=np.array([p, 1 - p]).tobytes())  # fmt: skip


@pytest.mark.parametrize(
    "again, n_old",
    [(arm(0.3 * (1 + 1e-15)), 0), (arm(0.3 * (1 + 1e-9)), 1), (arm(0.3, id="b"), 1), (arm(0.3, at_random=True), 1)],
)
def test_the_last_bits_of_probabilities_may_differ_in_logs_of_earlier_versions_alone(
    again: ChosenArm, n_old: int
) -> None:
    assert count_differences(arm(0.3), again, exact=False) == n_old
    assert count_differences(arm(0.3), again, exact=True) == 1
