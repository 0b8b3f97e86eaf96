"""What the picture of a sampler says."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.charts.sampler import traces
from lcb.errors import InputError
from lcb.learners.gibbs.draws import GibbsFit
from lcb.models import LatentModels
from support.chart_reading import rows

MODELS = LatentModels([1.0], [[0.5]], [0.1])


def test_every_chain_is_a_line_in_both_panels() -> None:
    n_classes, log_joint = np.array([[3, 2, 2], [1, 2, 2]]), np.array([[-9.0, -4.0, -5.0], [-8.0, -5.0, -4.0]])
    fit = GibbsFit(MODELS, log_joint[0], True, n_burn=1, n_classes=n_classes, log_joint=log_joint)
    chart = traces(fit, "two chains")
    assert chart.to_dict()["title"] == "two chains"
    assert rows(chart, "end") == [{"sweep": 1, "end": 2}]
    drawn = rows(chart, "chain", "sweep", "value")
    assert {row["chain"] for row in drawn} == {"chain 1", "chain 2"}
    values = [row["value"] for row in drawn]
    assert sorted(values) == sorted([*n_classes.ravel(), *log_joint.ravel()])


def test_long_chains_are_thinned_to_a_picture() -> None:
    long = np.zeros((1, 100_000))
    fit = GibbsFit(MODELS, long[0], True, n_classes=long.astype(int), log_joint=long)
    assert len(rows(traces(fit), "chain")) == 2 * 400


def test_a_fit_without_draws_is_refused() -> None:
    with pytest.raises(InputError, match="no draws"):
        traces(GibbsFit(MODELS, np.zeros(3), True))
