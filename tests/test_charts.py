"""What the pictures say, read back from their Vega-Lite specification and from the files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import booleans, floats, lists

from lcb.charts import Curve, _apart, bars, heat_map, posterior_path, regret_by_steps, regret_by_users, save
from lcb.errors import InputError, OutputError
from lcb.models import LatentModels

ALGORITHMS = ["lcb", "lcb-mean", "lcb-gt", "lcb-gt-mean", "linucb-population", "linucb-individual", "random"]
ENDS = [0.55, 0.48, 0.36, 0.31, 4.9, 5.9, 11.4]


def some_models(
    n_classes: int, n_features: int, low: float = -1.0, names: tuple[str, ...] = ()
) -> LatentModels:
    rng = np.random.default_rng(n_classes * 100 + n_features)
    pi, beta = rng.dirichlet(np.full(n_classes, 2.0)), rng.uniform(low, 1.0, (n_classes, n_features))
    return LatentModels(pi, beta, rng.uniform(0.005, 0.03, n_classes), names)


def some_curves(names: list[str] = ALGORITHMS, scale: float = 1.0) -> list[Curve]:
    ends = dict(zip(ALGORITHMS, ENDS, strict=True))
    at = [10.0, 50.0, 100.0]
    return [Curve(n, at, [scale * ends[n] * f for f in (1.3, 1.1, 1)], [0.1, 0.05, 0.02]) for n in names]


def rows(chart: Any, *fields: str) -> list[dict[str, Any]]:
    """The data rows of the chart that have all these fields."""
    data = [row for part in chart.to_dict()["datasets"].values() for row in part]
    return [row for row in data if set(fields) <= set(row)]


def encodings(chart: Any, channel: str) -> list[dict[str, Any]]:
    layers = chart.to_dict()["layer"]
    return [layer["encoding"][channel] for layer in layers if channel in layer["encoding"]]


def style(chart: Any, channel: str) -> dict[str, Any]:
    scale = encodings(chart, channel)[0]["scale"]
    return dict(zip(scale["domain"], scale["range"], strict=True))


def luminance(colour: Any) -> float:
    """As WCAG 2 defines it, of red, green and blue in [0, 1]."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def rgb(colour: str) -> list[float]:
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


# The heat map


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
        colour = [
            np.interp(cell["weight"], stops, channel)
            for channel in zip(*map(rgb, scale["range"]), strict=True)
        ]
        dark, light = sorted([luminance(colour), luminance(rgb(cell["ink"]))])
        assert (light + 0.05) / (dark + 0.05) > 3.4, cell


def test_only_long_feature_names_are_turned():
    short, long = some_models(2, 2), some_models(2, 2, names=("Crime, Law and Justice", "Weather"))
    angles = [encodings(heat_map(models), "x")[0]["axis"]["labelAngle"] for models in (short, long)]
    assert angles == [0, -45]


def test_classes_of_zero_weight_can_be_drawn():
    chart = heat_map(LatentModels([1.0], [[0.0, 0.0]], [0.01]))
    assert encodings(chart, "color")[0]["scale"]["domain"] == [0, 1]


# The regret curves


@pytest.mark.parametrize("draw", [regret_by_users, regret_by_steps])
@pytest.mark.parametrize("names", [ALGORITHMS, ["lcb"]])
def test_bands_are_two_standard_errors_either_side_of_the_mean(draw, names):
    curves = some_curves(names, scale=10)
    data = rows(draw(curves), "low")
    mean, se = (np.concatenate([getattr(curve, name) for curve in curves]) for name in ("mean", "se"))
    np.testing.assert_allclose([row["mean"] for row in data], mean)
    np.testing.assert_allclose([row["low"] for row in data], mean - 2 * se)
    np.testing.assert_allclose([row["high"] for row in data], mean + 2 * se)


def test_a_band_that_reaches_zero_ends_at_the_foot_of_a_log_axis():
    chart = regret_by_users(
        [Curve("lcb", [1, 2], [1.0, 0.3], [0.2, 0.2]), Curve("random", [1, 2], [9, 9], [0, 0])]
    )
    foot = encodings(chart, "y")[0]["scale"]["domain"][0]
    assert 0 < foot < 0.3
    assert [row["low"] for row in rows(chart, "low")] == [0.6, foot, 9, 9]


def test_an_algorithm_has_the_same_colour_and_dash_in_every_figure():
    first, second = regret_by_users(some_curves()), regret_by_steps(some_curves(ALGORITHMS[::-1][:4]))
    for channel in ("color", "strokeDash"):
        assert style(second, channel).items() <= dict(style(first, channel)).items()
    bar = style(bars(list(zip(ALGORITHMS, ENDS, strict=True)), "regret"), "color")
    assert bar == style(first, "color")


def test_paper_algorithms_differ_in_dash_and_in_colour():
    chart = regret_by_users(some_curves())
    dashes = {tuple(dash) for dash in style(chart, "strokeDash").values()}
    assert len(dashes) == len(set(style(chart, "color").values())) == len(ALGORITHMS)


def test_variants_share_the_colour_of_their_family_and_not_its_dash():
    names = ["lcb", "lcb-em", "lcb-gibbs", "lcb_gt", "lcb-gt-em"]
    chart = regret_by_users([Curve(name, [1, 2], [1, 1], [0, 0]) for name in names])
    colour, dash = style(chart, "color"), style(chart, "strokeDash")
    assert colour["lcb"] == colour["lcb-em"] == colour["lcb-gibbs"]
    assert colour["lcb_gt"] == colour["lcb-gt-em"] != colour["lcb"]
    assert len({(colour[name], *dash[name]) for name in names}) == len(names)


def test_a_name_of_no_known_family_has_the_same_colour_in_every_process():
    curves = [Curve(name, [1, 2], [1, 1], [0, 0]) for name in ("epoch-greedy", "iltcb", "exp4p")]
    code = f"""
from lcb.charts import Curve, regret_by_users
curves = [Curve(name, [1, 2], [1, 1], [0, 0]) for name in {[curve.algorithm for curve in curves]}]
print(regret_by_users(curves).to_dict()["layer"][0]["encoding"]["color"]["scale"]["range"])
"""
    assert python(code).strip() == str(list(style(regret_by_users(curves), "color").values()))


def test_the_axis_is_logarithmic_only_when_one_regret_dwarfs_another():
    kinds = [
        encodings(regret_by_users(curves), "y")[0]["scale"]["type"]
        for curves in (some_curves(), some_curves(["lcb", "lcb-gt"]), [Curve("lcb", [1, 2], [0, 9], [0, 0])])
    ]
    assert kinds == ["log", "linear", "linear"]


def test_a_log_axis_has_round_ticks_and_holds_every_mean():
    y = encodings(regret_by_users(some_curves()), "y")[0]
    assert y["axis"]["values"] == [0.2, 0.5, 1, 2, 5, 10, 20]
    assert y["scale"]["domain"] == [0.2, 20]


def test_every_line_is_labelled_at_its_end_and_no_labels_overlap():
    curves = some_curves()
    chart = regret_by_users(curves)
    labels = rows(chart, "place")
    assert [label["text"].split(" · ")[0] for label in labels] == ALGORITHMS
    assert [(label["end"], label["value"]) for label in labels] == [
        (100.0, curve.mean[-1]) for curve in curves
    ]
    low, high = np.log(encodings(chart, "y")[0]["scale"]["domain"])
    pixels = (np.log([label["place"] for label in labels]) - low) / (high - low) * chart.to_dict()["height"]
    assert np.diff(np.sort(pixels)).min() > 15.9
    assert np.argsort(pixels).tolist() == np.argsort(ENDS).tolist()


@given(lists(floats(0.01, 100), min_size=1, max_size=20), booleans())
def test_labels_moved_apart_keep_order_room_and_the_axis(values, log):
    places = _apart(np.array(values), (0.01, 100.0), log, pixels=320)
    to = np.log if log else np.asarray
    pixels = (to(places) - to(0.01)) / (to(100.0) - to(0.01)) * 320
    assert -1e-6 < pixels.min() <= pixels.max() < 320 + 1e-6
    ordered = pixels[np.argsort(values, kind="stable")]
    assert (np.diff(ordered) > 16 - 1e-6).all()


def test_labels_with_room_stay_where_they_are():
    np.testing.assert_allclose(_apart(np.array([90.0, 10.0]), (0.0, 100.0), False, 320), [90, 10])


def test_only_the_chart_by_steps_has_points():
    marks = [
        {m["mark"]["type"] for m in draw(some_curves()).to_dict()["layer"]}
        for draw in (regret_by_users, regret_by_steps)
    ]
    assert marks[1] - marks[0] == {"point"}


def test_a_single_place_is_drawn_as_a_point():
    chart = regret_by_users([Curve("lcb", [100], [2.0], [0.1])])
    assert "point" in {layer["mark"]["type"] for layer in chart.to_dict()["layer"]}


def test_a_curve_of_unequal_lengths_or_without_a_standard_error_is_refused():
    with pytest.raises(InputError, match="2 places, 1 means and 2 standard errors; send as many of each"):
        Curve("lcb", [1, 2], [1.0], [0.1, 0.1])
    with pytest.raises(InputError, match="single run send standard errors of 0"):
        Curve("lcb", [1, 2], [1.0, 2.0], [0.1, float("nan")])


def test_curves_must_exist_and_have_different_names():
    with pytest.raises(InputError, match="there are no curves to draw; send at least one"):
        regret_by_users([])
    with pytest.raises(InputError, match="two curves are named lcb; give each a name of its own"):
        regret_by_steps(some_curves(["lcb", "random", "lcb"]))


# Bars


def test_bars_keep_their_order_and_print_their_values():
    data = rows(bars([("b", 12345.0), ("a", 0.8), ("c", -3.25)], "seconds"), "base")
    assert [(row["name"], row["text"], row["base"]) for row in data] == [
        ("b", "12,345", 0),
        ("a", "0.80", 0),
        ("c", "−3.25", 0),
    ]


def test_the_reference_is_a_rule_at_its_value():
    chart = bars([("a", 2.0)], "seconds", reference=1.5)
    assert {"value": 1.5, "text": "1.50"} in rows(chart)
    assert encodings(chart, "x")[0]["title"] == "seconds"
    assert "rule" in {layer["mark"]["type"] for layer in chart.to_dict()["layer"]}
    assert "rule" not in {layer["mark"]["type"] for layer in bars([("a", 2.0)], "seconds").to_dict()["layer"]}


def test_the_reference_lies_on_the_axis_even_beyond_all_bars():
    assert encodings(bars([("a", 2.0)], "s", reference=9.0), "x")[0]["scale"]["domain"] == [0, 9]


def test_every_bar_on_a_log_axis_has_a_length():
    for row in rows(bars([("a", 1.0), ("b", 1e6)], "per second", log=True), "base"):
        assert 0 < row["base"] < row["value"]


def test_a_bar_without_a_place_on_the_axis_is_refused():
    with pytest.raises(
        InputError, match=r"is 0.0; it must be above 0 on a log axis; drop it, or draw with log=False"
    ):
        bars([("a", 1.0), ("b", 0.0)], "seconds", log=True)
    with pytest.raises(InputError, match="is inf; it must be finite"):
        bars([("a", float("inf"))], "seconds")


# The posterior


def test_bands_of_the_posterior_are_as_thick_as_the_probabilities():
    posterior = np.random.default_rng(0).dirichlet(np.ones(4), size=6)
    data = rows(posterior_path(posterior), "probability")
    thickness = np.array([row["high"] - row["low"] for row in data]).reshape(-1, 4)
    np.testing.assert_allclose(thickness, np.vstack([posterior, posterior[-1:]]), atol=1e-12)
    assert max(row["high"] for row in data) == 1
    assert min(row["low"] for row in data) == pytest.approx(0, abs=1e-12)


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
    with pytest.raises(InputError, match=r"shape \(2,\); send \(steps \+ 1, N\)"):
        posterior_path([0.5, 0.5])
    with pytest.raises(InputError, match=r"row 1 of the posterior sums to 1\.1"):
        posterior_path([[0.5, 0.5], [0.5, 0.6]])
    with pytest.raises(InputError, match=r"with smallest -0\.5"):
        posterior_path([[1.5, -0.5]])
    with pytest.raises(InputError, match="1 labels for 2 classes"):
        posterior_path([[0.5, 0.5]], labels=["a"])


# Saving


@pytest.fixture(scope="module")
def chart() -> Any:
    return regret_by_users(some_curves(), "Simulation")


def test_a_saved_png_is_a_picture_on_white_at_twice_the_size(chart, tmp_path):
    save(chart, tmp_path / "regret.PNG")
    save(chart, str(tmp_path / "regret.svg"))
    png = (tmp_path / "regret.PNG").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width = int.from_bytes(png[16:20])
    drawn = float(
        re.search(r'<svg[^>]* width="([\d.]+)"', (tmp_path / "regret.svg").read_text(encoding="utf-8"))[1]
    )
    assert abs(width - 2 * drawn) <= 2
    place, pixels = 8, b""
    while place < len(png):
        size = int.from_bytes(png[place : place + 4])
        pixels += png[place + 8 : place + 8 + size] if png[place + 4 : place + 8] == b"IDAT" else b""
        place += size + 12
    pixels = zlib.decompress(pixels)
    assert pixels[1:4] == b"\xff\xff\xff"  # the first pixel; no PNG filter changes it
    assert len(set(pixels)) > 16  # one colour would leave a handful of byte values


def test_a_saved_svg_has_title_axis_and_every_label(chart, tmp_path):
    save(chart, tmp_path / "regret.svg")
    svg = (tmp_path / "regret.svg").read_text(encoding="utf-8")
    for text in ("Simulation", "number of users", "bands of ± 2 standard errors", *ALGORITHMS):
        assert text in svg


def test_a_saved_html_needs_no_network(chart, tmp_path):
    save(chart, tmp_path / "regret.html")
    html = (tmp_path / "regret.html").read_text(encoding="utf-8")
    assert "linucb-population" in html
    assert len(html) > 500_000  # the drawing code is inside
    assert not re.search(r"<script[^>]*\ssrc\s*=", html)
    assert not re.search(r"<link[^>]*\shref\s*=", html)
    assert not re.search(r"""\bimport\s*\(?\s*["']https?:""", html)


def test_a_saved_json_is_the_same_chart(chart, tmp_path):
    save(chart, tmp_path / "regret.json")
    written = json.loads((tmp_path / "regret.json").read_text(encoding="utf-8"))
    assert written == chart.to_dict()
    assert alt.LayerChart.from_dict(written).to_dict() == written


@pytest.mark.parametrize("name, came", [("regret.pdf", ".pdf"), ("regret", "no suffix")])
def test_an_unknown_suffix_is_refused_with_those_that_are_known(chart, tmp_path, name, came):
    with pytest.raises(InputError, match=f"ends in {came}; name it .png, .svg, .html or .json"):
        save(chart, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["missing/regret.json", "file/regret.json", "folder.json"])
def test_a_place_that_cannot_be_written_is_named_and_left_as_it_was(chart, tmp_path, place):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder.json").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputError, match=re.escape(f"{tmp_path / place} cannot be written")) as caught:
        save(chart, tmp_path / place)
    assert "save to a file in a folder" in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError])
def test_a_save_cut_short_leaves_the_old_file_and_no_other(chart, tmp_path, monkeypatch, stop):
    path = tmp_path / "regret.json"
    path.write_text("old")

    def cut(source: Path, target: Path) -> None:
        assert Path(source).stat().st_size > 0
        raise stop("cut short")

    monkeypatch.setattr(os, "replace", cut)
    with pytest.raises(KeyboardInterrupt if stop is KeyboardInterrupt else OutputError):
        save(chart, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["regret.json"]
    assert path.read_text() == "old"


def test_a_chart_that_cannot_be_drawn_leaves_the_old_file(tmp_path):
    path = tmp_path / "regret.png"
    path.write_text("old")
    with pytest.raises(ValueError, match="encoding"):
        save(alt.Chart(alt.InlineData([{"a": 1}])).mark_bar().encode(x=alt.X("a")), path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["regret.png"]
    assert path.read_text() == "old"


# The extra


def test_importing_charts_loads_no_drawing_package():
    code = (
        "import sys, lcb.charts; print(sorted({'altair', 'vl_convert', 'scipy.optimize'} & set(sys.modules)))"
    )
    assert python(code) == "[]\n"


@pytest.mark.parametrize(
    "package, call", [("altair", "charts.bars([('a', 1.0)], 'x')"), ("vl_convert", "save()")]
)
def test_without_the_extra_the_error_says_how_to_install_it(package, call):
    code = f"""
import sys
sys.modules[{package!r}] = None
from lcb import charts
from lcb.errors import MissingExtra
def save():
    charts.save(charts.bars([('a', 1.0)], 'x'), 'never.png')
try:
    {call}
except MissingExtra as error:
    print(error)
"""
    name = {"vl_convert": "vl-convert-python"}.get(package, package)
    assert python(code) == f"{name} is not installed; it comes with: pip install 'lcb[plots]'\n"


def test_json_is_saved_without_the_renderer(tmp_path):
    path = str(tmp_path / "bars.json")
    hide = "import sys; sys.modules['vl_convert'] = None"
    python(f"{hide}\nfrom lcb.charts import bars, save\nsave(bars([('a', 1.0)], 'x'), {path!r})")
    assert json.loads(Path(path).read_text(encoding="utf-8"))["$schema"].startswith("https://vega.github.io")
