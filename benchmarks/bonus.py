"""The bonus of `PosteriorMean` in two generated worlds whose classes are known: regret per user by steps.

    python benchmarks/bonus.py [--users 4000] [--figure FILE.png]

tastes    clicks on 21 fixed arms, 10 classes: each class has two arms of its own at 0.7 and 0.5, all others are drawn
          between 0.1 and 0.3 for everybody
paper     the simulation of the paper: 5 classes, 20 new arms with 10 features at every step

All rules meet the same users and rewards.  The standard error is over users.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from timing import save

from lcb import charts
from lcb.bandits.bandit import Bandit, serve
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.evaluate.worlds.fixed_arms import FixedArms
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes
from lcb.models import LatentModels

N_STEPS, SHOWN = 50, (5, 10, 20, 50)
BONUSES = (0.0, 0.25, 0.5, 1.0, 2.0)


def world_of_tastes(rng: np.random.Generator, n_classes: int = 10, n_arms: int = 21) -> FixedArms:
    rates = np.tile(rng.uniform(0.1, 0.3, n_arms), (n_classes, 1))
    for h in range(n_classes):
        rates[h, 2 * h], rates[h, 2 * h + 1] = 0.7, 0.5
    pi = np.full(n_classes, 1 / n_classes)
    return FixedArms(LatentModels(pi, rates, np.full(n_classes, 0.2), likelihood="bernoulli", levels=(0.0, 1.0)))


def measure(world: FixedArms | SimulatedWorld, n_users: int) -> dict[str, np.ndarray]:
    """Return by rule the regret of each user up to each step, (users, steps)."""
    users = world.draw(n_users, N_STEPS, np.random.default_rng(1))
    rules: dict[str, Bandit] = {
        (f"bonus {c:g}" if c else "lcb-mean (bonus 0)"): PosteriorMean(world.models, bonus=c) for c in BONUSES
    }
    rules["lcb (Thompson)"] = GeneralizedThompson(world.models)
    best, found = users.means.max(axis=2), {}
    for name, bandit in rules.items():
        states = np.tile(bandit.start(), (n_users, 1))
        _, arms = serve(bandit, states, users.contexts, users.rewards, np.random.default_rng(2))
        taken = np.take_along_axis(users.means, arms[..., None], axis=2)[..., 0]
        found[name] = np.cumsum(best - taken, axis=1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=4000)
    parser.add_argument("--figure", type=Path, default=Path(__file__).parent / "results" / "bonus.png")
    asked = parser.parse_args()
    rows = []
    worlds = {"tastes": world_of_tastes(np.random.default_rng(0)), "paper": SimulatedWorld(paper_classes())}
    for name, world in worlds.items():
        curves = []
        for rule, regret in measure(world, asked.users).items():
            mean, se = regret.mean(axis=0), regret.std(axis=0) / np.sqrt(len(regret))
            shown = [(float(mean[n - 1]), float(se[n - 1])) for n in SHOWN]
            print(f"{name:8} {rule:20}" + "".join(f"{m:10.3f} ± {e:.3f}" for m, e in shown))
            rows += [
                {"world": name, "rule": rule, "steps": n, "regret": m, "se": e}
                for n, (m, e) in zip(SHOWN, shown, strict=True)
            ]
            if rule != "bonus 2":  # its line is that of bonus 1
                at = np.arange(10, N_STEPS + 1, 5)  # before, the lines of all bonuses are one
                curves.append(charts.Curve(rule, at.tolist(), mean[at - 1], se[at - 1]))
        if name == "tastes":
            asked.figure.parent.mkdir(exist_ok=True)
            title = f"Clicks on 21 arms, 10 known classes, {asked.users:,} users"
            charts.save(charts.regret_by_steps(curves, title), asked.figure)
    save("bonus", rows)


if __name__ == "__main__":
    main()
