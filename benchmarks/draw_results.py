"""Draw the figures of docs/results.md that no other command draws, from numbers that were measured before.

    python benchmarks/draw_results.py

Nothing is measured here. Numbers come from benchmarks/results/*.json; those of the service and of the other
libraries' programs stand below, as docs/results.md publishes them, each with the command that gave it.
"""

from __future__ import annotations

import json
from pathlib import Path

from lcb import charts

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parents[1] / "docs" / "figures"

# benchmarks/serve.py --prototype FOLDER [--store postgresql://...]: ratios to the prototype in two runs
SERVICE = {
    "SQLite: requests per second": (0.89, 0.95),
    "SQLite: CPU per request": (1.15, 1.08),
    "SQLite: 99th percentile of latency": (0.44, 0.46),
    "PostgreSQL: requests per second": (0.88, 1.01),
    "PostgreSQL: CPU per request": (1.13, 1.03),
    "PostgreSQL: 99th percentile of latency": (1.03, 0.82),
}
# benchmarks/million.py: median answer with 1,000,000 users in the store over that with 1,000
MILLION = {"6 rounds": 1.14, "3 rounds": 1.21}
CLUB_SECONDS = {"CLUB, 1000 users x 20 steps: lcb": 0.1, "CLUB, 1000 users x 20 steps: BanditLib": 372.0}


def draw_goodbooks() -> None:
    shown = ("lcb-auto", "lcb-personal", "mixed-model", "lcb-bonus", "lcb", "linucb-individual")
    rows = [
        (
            f"{row['algorithm']}: {row['reading'].replace('labels/', '5 stars, ').replace('/', ', ')}",
            row["vs_population_percent"],
        )
        for row in _rows("goodbooks_queue")
        if row["algorithm"] in shown and row["reading"] != "choices/pca:6"  # whose gains are ten times the others
    ]
    title = "goodbooks-10k: clicks of new users, by labels and features"
    charts.save(charts.bars(rows, "percent more clicks than Population LinUCB", title), FIGURES / "goodbooks.png")


def draw_service() -> None:
    rows = [(f"{what}, run {run}", ratio) for what, ratios in SERVICE.items() for run, ratio in enumerate(ratios, 1)]
    title = "The service beside a prototype without bandit and checks"
    charts.save(charts.bars(rows, "ratio to the prototype", title, reference=1.0), FIGURES / "service.png")
    title = "Median answer with 1,000,000 users in the store"
    chart = charts.bars(list(MILLION.items()), "ratio to 1,000 users", title, reference=1.0)
    charts.save(chart, FIGURES / "million.png")


def draw_fresh_user() -> None:
    shown = {"lcb": "lcb", "lcb-mean": "lcb-mean", "lcb-gt": "lcb-gt", "population": "linucb-population"}
    curves, texts = [], []
    for row in _rows("fresh_user")["regret"]:
        if row["name"] in shown:
            steps, means, halves = ([*row[key][:-1]] for key in ("steps", "mean", "half"))  # the last is over all steps
            curves.append(charts.Curve(shown[row["name"]], steps, means, [half / 1.96 for half in halves]))
            texts.append(f"{means[-1]:.3f}")
    panel = charts.GrowthPanel("300 new users through HTTP", "decision of a new user", curves, [], texts)
    title = "Expected reward lost at each decision, against the best article"
    charts.save(charts.growth([panel], "reward lost", title), FIGURES / "fresh-user.png")


def draw_speed() -> None:
    for n_arms, n_features in ((20, 10), (170, 21)):
        rows = [
            (row["what"], row["ratio"]) for row in _rows("bandits") if (row["n_arms"], row["d"]) == (n_arms, n_features)
        ]
        title = f"One decision and one update, {n_arms} arms, {n_features} features"
        chart = charts.bars(
            sorted(rows, key=lambda row: -row[1]),
            "rounds per CPU second, NumPy LinUCB = 1",
            title,
            reference=1.0,
            log=True,
        )
        charts.save(chart, FIGURES / f"speed-{n_arms}.png")


def draw_learning_time() -> None:
    em, gibbs = _rows("mixtures")
    rows = {
        "EM iteration, 20,000 users, 30 classes: lcb": em["ours_seconds"],
        "EM iteration, 20,000 users, 30 classes: flexmix": em["flexmix_seconds"],
        "Dirichlet process, 5 classes: lcb": gibbs["ours_seconds"],
        "Dirichlet process, 5 classes: bnpy": gibbs["bnpy_seconds"],
        **CLUB_SECONDS,
    }
    chart = charts.bars(list(rows.items()), "seconds", "Time beside other programs", log=True)
    charts.save(chart, FIGURES / "learning-time.png")


def _rows(name: str) -> list[dict]:
    return json.loads((RESULTS / f"{name}.json").read_text())["rows"]


if __name__ == "__main__":
    for draw in (draw_goodbooks, draw_service, draw_fresh_user, draw_speed, draw_learning_time):
        draw()
