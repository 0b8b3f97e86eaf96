"""An algorithm looks the same in every figure."""

from __future__ import annotations

from lcb.charts import Curve, bars, regret_by_steps, regret_by_users
from support.chart_reading import ALGORITHMS, ENDS, python, some_curves, style


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
    names = ["lcb", "lcb-em", "lcb-blocked", "lcb_gt", "lcb-gt-em"]
    chart = regret_by_users([Curve(name, [1, 2], [1, 1], [0, 0]) for name in names])
    colour, dash = style(chart, "color"), style(chart, "strokeDash")
    assert colour["lcb"] == colour["lcb-em"] == colour["lcb-blocked"]
    assert colour["lcb_gt"] == colour["lcb-gt-em"] != colour["lcb"]
    assert len({(colour[name], *dash[name]) for name in names}) == len(names)


def test_a_name_of_no_known_family_has_the_same_colour_in_every_process():
    curves = [Curve(name, [1, 2], [1, 1], [0, 0]) for name in ("magic", "wishful-thinking", "dice")]
    code = f"""
from lcb.charts import Curve, regret_by_users
curves = [Curve(name, [1, 2], [1, 1], [0, 0]) for name in {[curve.algorithm for curve in curves]}]
print(regret_by_users(curves).to_dict()["layer"][0]["encoding"]["color"]["scale"]["range"])
"""
    assert python(code).strip() == str(list(style(regret_by_users(curves), "color").values()))


def test_among_many_lines_those_of_the_papers_figures_are_strong_and_their_labels_bold():
    others = [f"lcb-exp4p-{i}" for i in range(5)]
    curves = [Curve(name, [1, 2], [1, 1], [0, 0]) for name in [*ALGORITHMS, *others]]
    layers = regret_by_users(curves).to_dict()["layer"]
    weak = ["lcb-gt-mean", *others]
    for kind, key, thin, strong in (("line", "strokeWidth", 1.2, 2.4), ("text", "fontWeight", "normal", "bold")):
        drawn = [layer for layer in layers if layer["mark"]["type"] == kind]
        assert [layer["mark"][key] for layer in drawn] == [thin, strong]
        assert drawn[0]["transform"] == [{"filter": {"field": "name", "oneOf": weak}}]
        assert drawn[1]["transform"] == [{"filter": {"not": {"field": "name", "oneOf": weak}}}]


def test_many_lines_that_are_none_of_the_papers_are_alike():
    layers = regret_by_steps([Curve(f"guess-{i}", [1, 2], [1, 1], [0, 0]) for i in range(12)]).to_dict()["layer"]
    assert [layer["mark"]["strokeWidth"] for layer in layers if layer["mark"]["type"] == "line"] == [2]


def test_the_families_of_the_registry_have_hues_of_their_own():
    from lcb.charts.style.theme import line_styles

    families = [
        "lcb",
        "lcb-gt",
        "lcb-spectral",
        "lcb-exp4p",
        "lcb-epoch-greedy",
        "exp4p-population",
        "lints-population",
    ]
    families += ["linucb-population", "cofineucb", "club", "sclub", "mts", "mucb", "random"]
    colours, _ = line_styles(families)
    assert len(set(colours)) == len(families)
    assert line_styles(["lcb-spectral-grouped", "club-one-hop-2", "lcb-exp3-theory"])[0] == [
        line_styles([name])[0][0] for name in ("lcb-spectral", "club-one-hop", "lcb-exp3")
    ]
