"""What to train on where arms are categories: `python benchmarks/training_rows.py [--goodbooks LOG] [--seeds 3]`.

An item of several categories gives a label to each of them.  Algorithms can be trained on one row per label (with the
features of that category), or on one row per event (with those of the whole item, as `lcb learn` does).  Both are
trained on the same users and serve the same new users: in generated worlds live, with the true rates; on a log by the
queue or by the filled queue.  Printed: the number of classes chosen, the mean reward with it and with a given number.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lcb.arrays import Floats, Index
from lcb.evaluate.algorithms import ALGORITHMS
from lcb.evaluate.offline.evaluate_log import complete_plan, evaluate_log, prepare_training
from lcb.evaluate.offline.history import LabelledRows
from lcb.evaluate.offline.log_sources import QueueSource, open_source
from lcb.evaluate.offline.split import Plan, choose_sizes, split_users
from lcb.evaluate.worlds.logged import LoggedWorld, serve_live
from lcb.event_log import EventLog
from lcb.storage.logs.log import Log, open_log

ALGORITHMS_TRIED = ("lcb-mean", "lcb", "linucb-population")
N_USERS, N_STEPS, N_LABELS, N_TRUE = 1200, 20, 120, 3000


@dataclass(frozen=True, eq=False)
class EventRows(QueueSource):
    """A log whose arms are categories, trained on one row per event."""

    log: Log | None = None
    like: float | None = None
    spec: str = "one-hot"

    def history(
        self, users: Index, x: Floats, names: tuple[str, ...], n_pulls: int | None, rng: np.random.Generator
    ) -> EventLog:
        assert self.log is not None
        rows = LabelledRows.of_log(self.log, self.like).of_users(users)
        return rows.history(self.features(self.spec, users)[0])


def open_both(log: Log, method: str, like: float | None, spec: str) -> dict[str, QueueSource]:
    labels = open_source(log, method, "labels", like)  # type: ignore[arg-type]
    assert isinstance(labels, QueueSource)
    events = EventRows(labels.labels, labels.when_empty, labels.method, None, log, like, spec)
    return {"label": labels, "event": events}


def try_world(world: LoggedWorld) -> None:
    """Print the mean true reward of every algorithm when it serves new users live."""
    log = world.write_log(N_USERS, N_LABELS)
    rates = world.arm_rates(world.draw_users(N_TRUE, np.random.default_rng((world.seed, 0x7E))))
    for rows, source in open_both(log, "queue", None, "one-hot").items():
        plan = Plan(*choose_sizes(source.n_events, N_STEPS), N_STEPS, None)
        split = split_users(source, plan, 0)
        chosen = complete_plan(source, plan, ALGORITHMS_TRIED, split, 0).n_classes
        for n_classes in dict.fromkeys((chosen, world.n_classes)):
            prepared = prepare_training(source, replace(plan, n_classes=n_classes), split, 0)
            found = []
            for name in ALGORITHMS_TRIED:
                own, serving = np.random.default_rng(0).spawn(2)
                served = serve_live(
                    ALGORITHMS[name].build_for(prepared.task, own, {}), prepared.x, rates, N_STEPS, serving
                )
                found.append(f"{name} {served.mean():.4f}")
            print(f"{world.people:8} seed {world.seed}, a row per {rows}, {n_classes} classes: {', '.join(found)}")
    print(f"{'':8} best arm of each user {rates.max(axis=1).mean():.4f}", flush=True)


def try_log(log: Log, like: float, method: str, plan: Plan, seed: int, n_seeds: int) -> None:
    """Print relative CTR of every algorithm, by this method."""
    spec, n_classes = plan.features or "one-hot", plan.n_classes
    for rows, source in open_both(log, method, like, spec).items():
        evaluation = evaluate_log(source, ALGORITHMS_TRIED, plan, seed=seed, n_seeds=n_seeds, n_workers=1)
        found = evaluation.to_json()["results"]
        shown = ", ".join(
            f"{one['algorithm']} {one['relative_ctr']:.4f} ± {one['se']:.4f} ({one['vs_population_percent']:+.2f} %)"
            for one in found
        )
        print(f"{method}, {spec}, a row per {rows}, {n_classes} classes: {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--goodbooks", type=Path)
    parser.add_argument("--method", default="queue")
    parser.add_argument("--features", default="one-hot")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1000, help="of the worlds or splits")
    parser.add_argument("--train-users", type=int, default=10_900)
    parser.add_argument("--test-users", type=int, default=3_600)
    parser.add_argument("--classes", type=int, default=30)
    words = parser.parse_args()
    if words.goodbooks is None:
        for people in ("classes", "mixed", "factors"):
            for seed in range(words.seeds):
                try_world(LoggedWorld(people, most_categories=3, seed=words.first_seed + seed))
    else:
        log = open_log(words.goodbooks)
        plan = Plan(words.train_users, words.test_users, N_STEPS, words.classes, words.features)
        try_log(log, 5, words.method, plan, words.first_seed, words.seeds)


if __name__ == "__main__":
    main()
