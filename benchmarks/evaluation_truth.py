"""How far estimates from a log are from the truth: `python benchmarks/evaluation_truth.py [--worlds 100] [--quick]`.

Every world is generated (`lcb.evaluate.worlds.logged`), so the true rates of every user are known.  `lcb-mean` and
Population LinUCB are trained on three quarters of the users of its log.  The truth is the gain of `lcb-mean` over
Population LinUCB when both really serve new users with the true rates.  Each method estimates it from the labels of the
other users.  Printed for every method: the mean of estimate minus truth, its spread, the mean half width of the 95 %
interval, in how many worlds the interval covers the truth, in how many worlds the method answers, and in how many of
these the interval covers.  Where arms are items (replay, propensities), the truth is that of serving items.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from lcb.arrays import Floats
from lcb.evaluate.algorithms import ALGORITHMS
from lcb.evaluate.offline.evaluate_log import evaluate_log, prepare_training
from lcb.evaluate.offline.filled import Filling, evaluate_filled, prepare_filling
from lcb.evaluate.offline.labels import QueueLabels
from lcb.evaluate.offline.log_sources import LogSource, QueueSource, open_source
from lcb.evaluate.offline.split import Plan, Split, choose_sizes, split_users
from lcb.evaluate.user_rates import Counts, DrawnRates, fit_rates
from lcb.evaluate.worlds.logged import LOGGING, PEOPLE, LoggedWorld, serve_live
from lcb.recommenders.recommender import Recommender
from lcb.runtime import parallel

N_STEPS, N_TRUE, N_CLASSES = 20, 3000, 5
LABELS = (1, 2, 4, 8, 15, 30)  # per user, times the steps
PAIR = ("lcb-mean", "linucb-population")
QUEUES = ("queue", "filled")  # methods of `lcb evaluate` with categories as arms
EVENTS = ("replay", "ips", "snips", "dr")  # with items as arms
TRIED = ("quarter", "own", "one-class", "posterior", "model", "corrected")  # tried, and not offered
LINES = {
    "queue": "queue",
    "quarter": "queue, steps are a quarter of the labels",
    "own": "draws from the user's own shares of clicks",
    "one-class": "draws from a posterior without classes",
    "posterior": "draws from the posterior with classes",
    "model": "draws from the model, without own labels",
    "corrected": "filled from half of the labels, corrected (DR)",
    "filled": "filled queue (the default)",
    "replay": "replay",
    "ips": "IPS",
    "snips": "SNIPS",
    "dr": "DR",
}


def list_worlds(n: int, first: int) -> Iterator[tuple[LoggedWorld, int]]:
    """Yield worlds and labels per user: people in turn; logging, categories per item and labels at random."""
    for i in range(first, first + n):
        rng = np.random.default_rng((i, 0xE7))
        most = int(rng.integers(1, 4))
        logging = LOGGING[int(rng.integers(0, 3 if most == 1 else 2))]
        labels = LABELS[int(rng.integers(0, len(LABELS)))] * N_STEPS
        yield LoggedWorld(PEOPLE[i % len(PEOPLE)], logging, most, seed=i), labels


def measure(task: tuple[LoggedWorld, int, int, bool]) -> dict[str, Any]:
    """Return the truth of one world, and [percent, standard error or half width, answered] of every method."""
    world, n_users, n_labels, quick = task
    log = world.write_log(n_users, n_labels)
    source = open_source(log, "queue", "labels")
    assert isinstance(source, QueueSource)
    plan = Plan(*choose_sizes(source.n_events, N_STEPS), N_STEPS, N_CLASSES)
    new = world.draw_users(N_TRUE, np.random.default_rng((world.seed, 0x7E)))
    found: dict[str, Any] = {"world": [world.people, world.logging, world.most_categories, n_labels]}
    found["truth"] = compute_truth(source, plan, world.arm_rates(new))
    for method in QUEUES:
        found[method] = ask(open_source(log, method, "labels"), plan)  # type: ignore[arg-type]
    if quick:
        return found
    for method in TRIED:
        found[method] = try_variant(source, plan, method)
    found["truth of items"] = compute_truth(open_source(log, "replay", "labels"), plan, world.item_rates(new))
    for method in EVENTS:
        found[method] = ask(open_source(log, method, "labels"), plan)  # type: ignore[arg-type]
    return found


def ask(source: LogSource, plan: Plan) -> list[float]:
    """Evaluate as `lcb evaluate` does, with one split; where there is no answer, take the numbers of the results."""
    evaluation = evaluate_log(source, PAIR[:1], plan, n_seeds=1, n_workers=1)
    answer = evaluation.answer
    if answer is None:
        row = evaluation.to_json()["results"][0]
        gain, error = (np.nan if row[key] is None else row[key] for key in ("vs_population_percent", "vs_se"))
        return [gain, 1.96 * error, 0]
    return [answer.percent, (answer.high - answer.low) / 2, 1]


def build(source: LogSource, plan: Plan, split: Split, name: str) -> tuple[Recommender, Floats, np.random.Generator]:
    """Train an algorithm as `evaluate_log` does; return it with the arms' features and the generator to serve with."""
    prepared = prepare_training(source, plan, split, 0)
    own, serving = np.random.default_rng((0, crc32(name.encode()))).spawn(2)
    return ALGORITHMS[name].build_for(prepared.task, own, {}), prepared.x, serving


def compute_truth(source: LogSource, plan: Plan, rates: Floats) -> float:
    """Serve users of these true rates (U, A) live with both algorithms; return the true gain in percent."""
    means = []
    for name in PAIR:
        recommender, x, rng = build(source, plan, split_users(source, plan, 0), name)
        means.append(serve_live(recommender, x, rates, N_STEPS, rng).mean())
    return float(100 * (means[0] / means[1] - 1))


def try_variant(source: QueueSource, plan: Plan, method: str) -> list[float]:
    """Estimate with a variant that `lcb evaluate` does not offer."""
    split = split_users(source, plan, 0)
    if method == "quarter":
        steps = int(np.clip(source.n_events[split.test].mean() / 4, 1, N_STEPS))
        return ask(source, replace(plan, n_steps=steps))
    labels, filling, held_out = prepare_variant(source.labels, split, method)
    means = []
    for name in PAIR:
        recommender, x, rng = build(source, plan, split, name)
        noting = Noting(recommender)
        rewards = evaluate_filled(noting, labels, filling, x, N_STEPS, rng=rng).rewards
        if held_out is None:
            means.append(rewards.mean(axis=1))
        else:
            means.append(correct(np.array(noting.arms).reshape(rewards.shape), filling.drawn.rate, *held_out))
    one, other = means
    ratio = one.mean() / other.mean()
    error = (one - ratio * other).std(ddof=1) / np.sqrt(len(one)) / other.mean()
    return [float(100 * (ratio - 1)), float(1.96 * 100 * error), 1]


def prepare_variant(
    labels: QueueLabels, split: Split, method: str
) -> tuple[QueueLabels, Filling, tuple[Floats, Floats] | None]:
    """Return the labels to serve first, the rates to draw from, and clicks and passes held out to correct with."""
    rng, users = np.random.default_rng(1), split.test
    clicked = labels.total[users]
    passed = labels.count[users] - clicked
    if method == "corrected":
        kept = rng.binomial(clicked.astype(int), 0.5), rng.binomial(passed.astype(int), 0.5)
        count, total = np.zeros_like(labels.count), np.zeros_like(labels.total)
        count[users], total[users] = kept[0] + kept[1], kept[0]
        half = replace(labels, count=count, total=total)
        return half, prepare_filling(half, users, N_STEPS, 0), (clicked - kept[0], passed - kept[1])
    none = replace(labels, count=np.zeros_like(labels.count))
    counts = Counts.build(clicked, passed)
    one_class = fit_rates(counts, 1, rng)
    if method == "own":
        rate = np.where(clicked + passed > 0, clicked / np.maximum(clicked + passed, 1), one_class.mean)
    elif method == "one-class":
        rate = one_class.draw(counts, rng)
    else:
        rate = prepare_filling(labels, users, 10**9, 0).drawn.rate
        if method == "model":  # rates as the test users have them, but those of somebody else
            rate = rng.permutation(rate)
    return none, Filling(users, DrawnRates(rate, 1, 1.0)), None


def correct(arms: np.ndarray, rate: Floats, clicked: Floats, passed: Floats) -> Floats:
    """Return each user's mean reward: the rates of the arms chosen, corrected by held-out labels (doubly robust)."""
    share = np.stack([(arms == a).mean(axis=1) for a in range(rate.shape[1])], axis=1)
    n = clicked + passed
    shown = n.sum(axis=0) / n.sum()
    weight = n / np.maximum(n.sum(axis=1, keepdims=True), 1) / np.maximum(shown, 1e-9)
    residual = np.where(n > 0, clicked / np.maximum(n, 1), rate) - rate
    return (share * (rate + weight * residual)).sum(axis=1)


class Noting:
    """Notes the arms that a recommender chooses."""

    def __init__(self, recommender: Recommender) -> None:
        self.recommender, self.arms = recommender, []  # type: ignore[var-annotated]
        self.start, self.update, self.serve = recommender.start, recommender.update, recommender.serve

    def choose(self, user: Any, context: Floats, rng: np.random.Generator) -> Any:
        decision = self.recommender.choose(user, context, rng)
        self.arms.append(decision.arm)
        return decision


def print_table(found: list[dict[str, Any]]) -> None:
    print(f"{'method':48}{'bias':>7}{'spread':>8}{'± 95 %':>8}{'covers':>8}{'answers':>9}{'covers':>8}")
    for method, line in LINES.items():
        if method not in found[0]:
            continue
        truth = np.array([one["truth of items" if method in EVENTS else "truth"] for one in found])
        percent, half, answered = np.array([one[method] for one in found]).T
        off, answers = percent - truth, answered > 0
        covers = np.abs(off) <= half
        sure = f"{100 * covers[answers].mean():6.0f} %" if answers.any() else "       -"
        print(
            f"{line:48}{off.mean():7.1f}{off.std():8.1f}{half.mean():8.1f}{100 * covers.mean():6.0f} %"
            f"{answers.sum():9d}{sure}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first world")
    parser.add_argument("--users", type=int, default=1200, help="users of a log; a quarter is tested")
    parser.add_argument("--quick", action="store_true", help="only queue and filled queue")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--json", type=Path)
    words = parser.parse_args()
    began = time.monotonic()
    tasks = [(world, words.users, n_labels, words.quick) for world, n_labels in list_worlds(words.worlds, words.first)]
    found = parallel.processes(measure, tasks, words.workers, lambda n: print(f"\r{n} worlds", end="", flush=True))
    print(f"\r{len(found)} worlds, {words.users} users, {N_STEPS} steps, {time.monotonic() - began:.0f} s")
    if words.json:
        words.json.write_text(json.dumps(found))
    print_table(found)


if __name__ == "__main__":
    main()
