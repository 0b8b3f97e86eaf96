"""What a round (one decision and one update) costs as arms and classes grow, step by step.

    python benchmarks/cost.py

Curves over K (20 to 10,000 arms, N 5) and over N (1 to 100 classes, K 20), d 10.
"""

from __future__ import annotations

import os
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from every_bandit import all_bandits  # noqa: E402
from timing import in_turns, save  # noqa: E402

from bandits import step_by_step  # noqa: E402
from lcb import charts  # noqa: E402
from lcb.evaluate.worlds.paper import equal_classes  # noqa: E402

ARMS, CLASSES, D, N_ROUNDS = (20, 100, 1000, 10_000), (1, 5, 20, 100), 10, 400


SHOWN = {
    "thompson": "lcb", "posterior mean": "lcb-mean", "coarse-fine": "cofineucb",
    **{name: f"lcb-{name}" for name in ("exp3", "exp4", "exp4p", "epoch-greedy", "iltcb")},
}  # fmt: skip


def measure(n_arms: int, n_classes: int) -> dict[str, float]:
    """Microseconds of CPU per round."""
    rng = np.random.default_rng(0)
    n_rounds = max(20, N_ROUNDS * 20 // max(n_arms, 20) * (1 if n_arms < 1000 else 4))
    beta = rng.standard_normal((n_classes, D))
    models = equal_classes(beta / np.linalg.norm(beta, axis=1, keepdims=True))
    x = rng.uniform(-1, 1, (n_rounds, n_arms, D))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    rewards = x @ models.beta[0]
    pieces = {
        name: lambda bandit=bandit: step_by_step(bandit, x, rewards)
        for name, bandit in all_bandits(models, (-1.5, 1.5)).items()
    }
    return {name: 1e6 * seconds / n_rounds for name, seconds in in_turns(pieces, turns=3).items()}


def main() -> None:
    by_arms = {n: measure(n, 5) for n in ARMS}
    by_classes = {n: measure(20, n) for n in CLASSES}
    panels, rows = [], []
    for size, measured in (("arms", by_arms), ("classes", by_classes)):
        at = list(measured)
        curves, texts = [], []
        for name in measured[at[0]]:
            costs = [measured[n][name] for n in at]
            rows += [{"bandit": name, size: n, "microseconds": cost} for n, cost in zip(at, costs, strict=True)]
            print(f"{name:16} by {size:8}" + "".join(f"{cost:12,.1f}" for cost in costs) + "  us")
            curves.append(charts.Curve(SHOWN.get(name, name), at, costs, [float("nan")] * len(at)))
            texts.append(f"{costs[-1]:,.0f}")
        fixed = "5 classes" if size == "arms" else "20 arms"
        panels.append(charts.GrowthPanel(f"{fixed}, {D} features", f"number of {size}", curves, [], texts))
    chart = charts.growth(panels, "microseconds of CPU", "Cost of one decision and one update")
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    charts.save(chart, folder / "cost.png")
    save("cost", rows)


if __name__ == "__main__":
    main()
