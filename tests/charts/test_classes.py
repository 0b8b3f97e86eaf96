"""The pictures of the classes, read back from their Vega-Lite specification."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lcb.charts import heat_map, posterior_path, save
from lcb.errors import InputError
from lcb.models import LatentModels
from support.chart_reading import encodings, rows


def some_models(n_classes: int, n_features: int, low: float = -1.0, names: tuple[str, ...] = ()) -> LatentModels:
    rng = np.random.default_rng(n_classes * 100 + n_features)
    pi, beta = rng.dirichlet(np.full(n_classes, 2.0)), rng.uniform(low, 1.0, (n_classes, n_features))
    return LatentModels(pi, beta, rng.uniform(0.005, 0.03, n_classes), names)


def luminance(colour: Any) -> float:
    """As WCAG 2 defines it, of red, green and blue in [0, 1]."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def rgb(colour: str) -> list[float]:
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


# The heat map


def test_personal_classes_show_how_much_their_people_differ():
    spread = np.array([[[0.04, 0.0], [0.0, 0.09]]])
    models = LatentModels([1.0], [[0.5, 0.25]], [0.1], covariance=spread, personal=True)
    assert [row["text"] for row in rows(heat_map(models), "text")] == ["0.50 ± 0.20", "0.25 ± 0.30"]
    assert [row["text"] for row in rows(heat_map(models.without_spread()), "text")] == ["0.50", "0.25"]


def test_heat_map_names_every_class_with_its_share_and_noise():
    models = LatentModels([0.24, 0.755, 0.005], np.eye(3), [0.01, 0.04, 0.0225])
    labels = list(dict.fromkeys(row["name"] for row in rows(heat_map(models), "weight")))
    assert labels == [
        "class 1 · 24 % · noise 0.10",
        "class 2 · 76 % · noise 0.20",
        "class 3 · <1 % · noise 0.15",
    ]


@pytest.mark.parametrize("shape", [(5, 10), (30, 6), (8, 21), (2, 2), (1, 1), (3, 60)])
def test_heat_map_has_a_cell_per_class_and_feature_in_their_order(shape):
    models = some_models(*shape)
    cells = rows(heat_map(models), "weight")
    np.testing.assert_array_equal([cell["weight"] for cell in cells], models.beta.ravel())
    assert [cell["feature"] for cell in cells[: shape[1]]] == list(models.features)


@pytest.mark.parametrize("n_features, printed", [(25, True), (26, False)])
def test_weights_are_printed_up_to_25_features(n_features, printed):
    marks = [layer["mark"]["type"] for layer in heat_map(some_models(2, n_features)).to_dict()["layer"]]
    assert marks == (["rect", "text"] if printed else ["rect"])


def test_printed_weights_are_the_weights_rounded():
    models = LatentModels([1.0], [[-0.256, -0.001, 0.0, 0.8]], [0.01])
    assert [cell["text"] for cell in rows(heat_map(models), "weight")] == ["−0.26", "0.00", "0.00", "0.80"]


def test_colours_diverge_around_zero_only_when_signs_are_mixed():
    mixed, positive = some_models(3, 4), some_models(3, 4, low=0.1)
    largest = np.abs(mixed.beta).max()
    scale = encodings(heat_map(mixed), "color")[0]["scale"]
    assert scale["domain"] == [-largest, largest]
    assert len(scale["range"]) % 2 == 1
    assert min(rgb(scale["range"][len(scale["range"]) // 2])) > 0.95  # white in the middle
    assert encodings(heat_map(positive), "color")[0]["scale"]["domain"] == [0, positive.beta.max()]


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_printed_weights_stand_out_from_their_cells(low):
    chart = heat_map(some_models(20, 25, low=low))
    scale = encodings(chart, "color")[0]["scale"]
    stops = np.linspace(*scale["domain"], len(scale["range"]))
    for cell in rows(chart, "weight"):
        colour = [np.interp(cell["weight"], stops, channel) for channel in zip(*map(rgb, scale["range"]), strict=True)]
        dark, light = sorted([luminance(colour), luminance(rgb(cell["ink"]))])
        assert (light + 0.05) / (dark + 0.05) > 3.4, cell


def test_only_long_feature_names_are_turned():
    short, long = some_models(2, 2), some_models(2, 2, names=("Crime, Law and Justice", "Weather"))
    angles = [encodings(heat_map(models), "x")[0]["axis"]["labelAngle"] for models in (short, long)]
    assert angles == [0, -45]


def test_classes_of_zero_weight_can_be_drawn():
    chart = heat_map(LatentModels([1.0], [[0.0, 0.0]], [0.01]))
    assert encodings(chart, "color")[0]["scale"]["domain"] == [0, 1]


# The posterior


def test_bands_of_the_posterior_are_as_thick_as_the_probabilities():
    posterior = np.random.default_rng(0).dirichlet(np.ones(4), size=6)
    data = rows(posterior_path(posterior), "probability")
    thickness = np.array([row["high"] - row["low"] for row in data]).reshape(-1, 4)
    np.testing.assert_allclose(thickness, posterior, atol=1e-12)
    assert max(row["high"] for row in data) == 1
    assert min(row["low"] for row in data) == pytest.approx(0, abs=1e-12)


def test_the_posterior_ends_with_the_last_reward():
    chart = posterior_path(np.full((21, 2), 0.5))
    assert encodings(chart, "x")[0]["scale"]["domain"] == [0, 20]
    assert {row["seen"] for row in rows(chart, "seen")} == set(range(21))
    assert {row["end"] for row in rows(chart, "end")} == {20}
    assert encodings(chart, "x")[0]["axis"]["values"][-1] == 20


def test_labels_of_the_posterior_stand_in_the_order_of_the_bands():
    chart = posterior_path([[0.25, 0.25, 0.25, 0.25], [0.0, 0.001, 0.999, 0.0]], labels=["a", "b", "c", "d"])
    labels = sorted(rows(chart, "place"), key=lambda row: -row["place"])
    assert [label["text"] for label in labels] == ["a · 0 %", "b · <1 %", "c · >99 %", "d · 0 %"]


def test_of_many_classes_the_eight_most_probable_are_shown_and_the_rest_together():
    posterior = np.full((2, 30), 0.5 / 22)
    posterior[:, 3:11] = 0.5 / 8
    data = rows(posterior_path(posterior), "probability")
    assert [row["name"] for row in data[:9]] == [f"class {h}" for h in range(4, 12)] + ["22 others"]
    assert data[8]["probability"] == pytest.approx(0.5)


def test_a_user_without_rewards_has_a_posterior_too(tmp_path):
    save(posterior_path([[0.3, 0.7]]), tmp_path / "posterior.svg")
    assert "class 2 · 70 %" in (tmp_path / "posterior.svg").read_text(encoding="utf-8")


def test_what_is_not_a_posterior_is_refused():
    with pytest.raises(InputError, match=r"shape \(2,\); give \(steps \+ 1, N\)"):
        posterior_path([0.5, 0.5])
    with pytest.raises(InputError, match=r"row 1 of the posterior sums to 1\.1"):
        posterior_path([[0.5, 0.5], [0.5, 0.6]])
    with pytest.raises(InputError, match=r"with smallest -0\.5"):
        posterior_path([[1.5, -0.5]])
    with pytest.raises(InputError, match="1 labels for 2 classes"):
        posterior_path([[0.5, 0.5]], labels=["a"])
