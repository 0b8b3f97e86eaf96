"""How far the filled queue is from the truth on logs of recommenders that learn, which show bad arms rarely.

    python benchmarks/adaptive_logs.py [--worlds 100] [--first 0] [--users 1200] [--seeds 3] [--workers 2]
                                       [--json FILE]

Generated worlds (`lcb.evaluate.worlds.logged`) of 12 arms, served one user after another by

    all             one LinUCB for all users
    per user        one LinUCB per user
    service U       as an `lcb` service: 200 users by one LinUCB, then by classes that are learned again whenever the
                    users have doubled (posterior mean, bonus 0.5); the share U of choices is uniform

The truth is the gain of `lcb-mean` over Population LinUCB, both trained on three quarters of the log, when they really
serve as many new users as are tested (ten times, each time as trained: Population LinUCB learns while it serves, and
what it believes of rarely shown arms is soon corrected).  The filled queue estimates it from the other quarter, with
as many splits as `lcb evaluate` makes by default.  Printed by logging: how often it answers, how
often the 95 % interval covers the truth when it answers and when it does not, bias, half width, and the range of the
share of pairs (user, arm) with a label.  A log of one arm is refused, and is not among those that would cover.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from evaluation_truth import N_CLASSES, N_STEPS, PAIR, build

from lcb.arrays import Floats
from lcb.bandits.bandit import Bandit, serve
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.evaluate.offline.evaluate_log import evaluate_log
from lcb.evaluate.offline.log_sources import LogSource, open_source
from lcb.evaluate.offline.split import Plan, choose_sizes, split_users
from lcb.evaluate.worlds.logged import PEOPLE, LoggedWorld, serve_live
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.runtime import parallel
from lcb.storage.logs.log import Log

LOGGING = ("all", "per user", "service 0.01", "service 0.1", "service 0.3")
LABELS = (20, 40, 80, 160)  # per user
N_WARMUP = 200
N_GROUPS = 10
WIDTH = 0.25  # of LinUCB


def list_worlds(n: int, first: int) -> Iterator[tuple[LoggedWorld, str, int]]:
    """Yield worlds, logging and labels per user: people and logging in turn, every pair once in 25 worlds."""
    for i in range(first, first + n):
        labels = LABELS[int(np.random.default_rng((i, 0xAD)).integers(0, len(LABELS)))]
        yield LoggedWorld(PEOPLE[i % 5], seed=10_000 + i), LOGGING[(i // 5) % 5], labels


def write_log(world: LoggedWorld, logging: str, n_users: int, n_labels: int) -> Log:
    """Serve users and return the log, in the order of serving."""
    rng = np.random.default_rng((world.seed, 0xAE))
    rates = world.draw_users(n_users, rng)
    rewards = (rng.random((n_users, n_labels, world.n_categories)) < rates[:, None]).astype(np.float64)
    bandit: Bandit = LinUCB(world.n_categories, width=WIDTH)
    if logging == "per user":
        _, arms = serve(bandit, np.tile(bandit.start(), (n_users, 1)), _contexts(rewards), rewards, rng)
    elif logging == "all":
        _, arms = _serve_all(bandit, rewards, rng)
    else:
        arms = _serve_as_service(bandit, rewards, float(logging.split()[1]), rng)
    log = world.write_log(n_users, n_labels, exactly=True)
    taken = np.take_along_axis(rewards, arms[..., None], axis=2)[..., 0]
    return replace(log, item=arms.ravel().astype(np.int32), reward=taken.ravel().astype(np.float32), propensity=None)


def _contexts(rewards: Floats) -> Floats:
    x = np.eye(rewards.shape[2])
    return np.ascontiguousarray(np.broadcast_to(x, (*rewards.shape, len(x))))


def _serve_all(bandit: Bandit, rewards: Floats, rng: np.random.Generator, uniform: float = 0.0) -> tuple[Floats, Any]:
    """Serve all users with one state; return it and the arms (U, T)."""
    x, state, arms = np.eye(rewards.shape[2]), bandit.start(), np.empty(rewards.shape[:2], np.int64)
    for u, t in np.ndindex(arms.shape):
        decision = bandit.choose(state, x, rng)
        if rng.random() < uniform:
            arm = int(rng.integers(len(x)))
            decision = replace(decision, arm=arm, x=x[arm])
        arms[u, t] = decision.arm
        state = bandit.update(state, decision, rewards[u, t, decision.arm])
    return state, arms


def _serve_as_service(bandit: Bandit, rewards: Floats, uniform: float, rng: np.random.Generator) -> Any:
    n_users, n_labels, n_arms = rewards.shape
    arms = np.empty((n_users, n_labels), np.int64)
    _, arms[:N_WARMUP] = _serve_all(bandit, rewards[:N_WARMUP], rng, uniform)
    begin = N_WARMUP
    while begin < n_users:
        end = min(2 * begin, n_users)
        shown = np.zeros((begin, n_arms))
        clicked = np.zeros_like(shown)
        for t in range(n_labels):
            np.add.at(shown, (np.arange(begin), arms[:begin, t]), 1)
            np.add.at(clicked, (np.arange(begin), arms[:begin, t]), rewards[np.arange(begin), t, arms[:begin, t]])
        models = fit(EventLog.from_counts(np.eye(n_arms), clicked, shown - clicked), rng=rng).models
        learned = PosteriorMean(models, uniform, 0.5)
        states = np.tile(learned.start(), (end - begin, 1))
        _, arms[begin:end] = serve(learned, states, _contexts(rewards[begin:end]), rewards[begin:end], rng)
        begin = end
    return arms


def compute_truth(source: LogSource, plan: Plan, world: LoggedWorld) -> float:
    """Serve new users live with both algorithms, as many as tested, `N_GROUPS` times; return the gain in percent."""
    rng = np.random.default_rng((world.seed, 0x7E))
    groups = [world.arm_rates(world.draw_users(plan.n_test_users, rng)) for _ in range(N_GROUPS)]
    means = []
    for name in PAIR:
        recommender, x, serving = build(source, plan, split_users(source, plan, 0), name)
        served = [serve_live(deepcopy(recommender), x, rates, N_STEPS, serving) for rates in groups]
        means.append(float(np.mean(served)))
    return 100 * (means[0] / means[1] - 1)


def measure(task: tuple[LoggedWorld, str, int, int, int]) -> dict[str, Any]:
    world, logging, n_labels, n_users, n_seeds = task
    about = {"people": world.people, "logging": logging, "labels": n_labels}
    log = write_log(world, logging, n_users, n_labels)
    if len(np.unique(log.item)) == 1:  # which `lcb evaluate` refuses with an error
        return about | {"answers": False, "percent": None}
    source = open_source(log, "filled", "labels")
    plan = Plan(*choose_sizes(source.n_events, N_STEPS), N_STEPS, N_CLASSES)
    told = evaluate_log(source, PAIR[:1], plan, n_seeds=n_seeds, n_workers=1)
    row, answer = told.to_json()["results"][0], told.answer
    half = 1.96 * (row["vs_se"] or 0.0) if answer is None else (answer.high - answer.low) / 2
    return about | {
        "truth": compute_truth(source, plan, world),
        "percent": row["vs_population_percent"],
        "half": half,
        "answers": answer is not None,
        "support": row["diagnostics"]["support"],
        "withheld": row["diagnostics"]["withheld"],
        "favoured": row["diagnostics"]["favoured"],
        "shortfall": row["diagnostics"]["shortfall"],
    }


def print_table(found: list[dict[str, Any]]) -> None:
    print("| logging | worlds | answers | covers | bias | ± 95 % | without an answer: covers | pairs with a label |")
    print("|---|---|---|---|---|---|---|---|")
    for logging in (*LOGGING, "together"):
        both = [one for one in found if logging in (one["logging"], "together")]
        own = [one for one in both if one["percent"] is not None]
        if not own:
            if both:
                print(f"| {logging} | {len(both)} | 0 | 0 | - | - | - | one arm |")
            continue
        off = np.array([one["percent"] - one["truth"] for one in own])
        half, answers = (np.array([one[key] for one in own]) for key in ("half", "answers"))
        covers, support = np.abs(off) <= half, np.array([100 * one["support"] for one in own])
        bias = f"{off[answers].mean():+.1f} | {half[answers].mean():.1f}" if answers.any() else "- | -"
        print(
            f"| {logging} | {len(both)} | {answers.sum()} | {covers[answers].sum()} | {bias} | "
            f"{covers[~answers].sum()} of {(~answers).sum()} | {support.min():.0f} to {support.max():.0f} % |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first world")
    parser.add_argument("--users", type=int, default=1200, help="users of a log; a quarter is tested")
    parser.add_argument("--seeds", type=int, default=3, help="splits of the users")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    tasks = [(*world, asked.users, asked.seeds) for world in list_worlds(asked.worlds, asked.first)]
    found = parallel.processes(measure, tasks, asked.workers, lambda n: print(f"\r{n} worlds", end="", flush=True))
    print("\r", end="")
    if asked.json:
        asked.json.write_text(json.dumps(found))
    print_table(found)


if __name__ == "__main__":
    main()
