"""What a recomputed decision may differ in."""

from __future__ import annotations

import msgspec
import pytest

from lcb.serve.audit.checks.decisions import _check_taken
from lcb.serve.audit.report import Report
from lcb.serve.events import ChosenArm


@pytest.mark.parametrize("mean, n_differences", [(0.9830596582518732, 0), (0.98305966, 1), (None, 1)])
def test_the_mean_beside_an_effect_may_differ_in_its_last_bits_alone(mean: float | None, n_differences: int) -> None:
    stored = ChosenArm(0, "a", 1.0, b"", None, False, None, effect=0.1, mean=0.9830596582518735)
    report = Report()
    _check_taken(7, 2, stored, msgspec.structs.replace(stored, mean=mean), report)
    assert len(report.differences) == n_differences
