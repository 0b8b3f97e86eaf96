"""Rounds (one decision and one update) per CPU second, beside ten lines of NumPy and the libraries of the field.

    python benchmarks/bandits.py [--peers PYTHON]

The unit is a ten-line LinUCB in NumPy, run in turns with ours.  The other libraries do not share one environment with
ours: PYTHON is an interpreter that has them (`scripts/benchmark` makes one), asked through `benchmarks/peers.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from every_bandit import all_bandits  # noqa: E402
from timing import in_turns, save  # noqa: E402

from lcb import charts  # noqa: E402
from lcb.bandits.bandit import Bandit, count_decision, serve  # noqa: E402
from lcb.evaluate.worlds.paper import paper_classes  # noqa: E402

SIZES, N_ROUNDS, N_STEPS = ((20, 10), (170, 21)), 4000, 20
WIDTH = 0.5


def numpy_linucb(x: np.ndarray, rewards: np.ndarray) -> None:
    """The unit: Sherman-Morrison, one weight vector, arms' features per decision."""
    d = x.shape[2]
    inverse, b, theta = np.eye(d), np.zeros(d), np.zeros(d)
    for context, reward in zip(x, rewards, strict=True):
        arm = int((context @ theta + WIDTH * np.sqrt(((context @ inverse) * context).sum(1))).argmax())
        w = inverse @ context[arm]
        inverse -= np.outer(w, w) / (1 + w @ context[arm])
        b += reward[arm] * context[arm]
        theta = inverse @ b


def step_by_step(bandit: Bandit, x: np.ndarray, rewards: np.ndarray) -> None:
    rng, state = np.random.default_rng(0), bandit.start()
    for context, reward in zip(x, rewards, strict=True):
        decision = bandit.choose(state, context, rng)
        state = bandit.update(count_decision(bandit, state, decision), decision, reward[decision.arm])


def at_once(bandit: Bandit, x: np.ndarray, rewards: np.ndarray) -> None:
    users = N_ROUNDS // N_STEPS
    states = np.tile(bandit.start(), (users, 1))
    serve(
        bandit, states, x.reshape(users, N_STEPS, *x.shape[1:]), rewards.reshape(users, N_STEPS, -1),
        np.random.default_rng(0),
    )  # fmt: skip


def measure(n_arms: int, d: int) -> dict[str, float]:
    """Rounds per CPU second."""
    rng, models = np.random.default_rng(0), paper_classes(n_features=d)
    x = rng.uniform(-1, 1, (N_ROUNDS, n_arms, d))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    rewards = x @ models.beta[0] + 0.1 * rng.standard_normal((N_ROUNDS, n_arms))
    pieces = {"numpy linucb": lambda: numpy_linucb(x, rewards)}
    for name, bandit in all_bandits(models, (-1.5, 1.5)).items():
        pieces[f"lcb {name}"] = lambda bandit=bandit: step_by_step(bandit, x, rewards)
        if hasattr(bandit, "serve"):
            pieces[f"lcb {name}, compiled"] = lambda bandit=bandit: at_once(bandit, x, rewards)
    return {name: N_ROUNDS / seconds for name, seconds in in_turns(pieces, turns=5).items()}


def ask_peers(python: str) -> list[dict[str, object]]:
    answer = subprocess.run([python, str(Path(__file__).with_name("peers.py"))], capture_output=True, text=True)
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    for row in rows:
        if "missing" in row:
            print(f"not measured: {row['peer']} ({row['missing']})")
    return [row for row in rows if "missing" not in row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has the other libraries")
    peers = ask_peers(parser.parse_args().peers) if parser.parse_args().peers else []
    rows = []
    for n_arms, d in SIZES:
        rates = measure(n_arms, d)
        unit = rates["numpy linucb"]
        for peer in peers:
            if (peer["n_arms"], peer["d"]) == (n_arms, d):  # measured with its own run of the unit
                rates[str(peer["peer"])] = unit * float(peer["ratio"])
        for name, rate in rates.items():
            rows.append({"n_arms": n_arms, "d": d, "what": name, "rounds_per_cpu_s": rate, "ratio": rate / unit})
            print(f"K {n_arms:3} d {d:2}  {name:34} {rate:12,.0f} rounds per CPU s   {rate / unit:7.2f} x NumPy")
        shown = sorted(((name, rate / unit) for name, rate in rates.items()), key=lambda row: -row[1])
        chart = charts.bars(
            shown, "rounds per CPU second, NumPy LinUCB = 1", f"One decision and one update, K {n_arms}, d {d}",
            reference=1.0, log=True,
        )  # fmt: skip
        folder = Path(__file__).parent / "results"
        folder.mkdir(exist_ok=True)
        charts.save(chart, folder / f"bandits-{n_arms}-{d}.png")
    save("bandits", rows)


if __name__ == "__main__":
    main()
