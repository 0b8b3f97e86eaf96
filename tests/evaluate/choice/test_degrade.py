"""What `lcb-auto` loses where classes are no help or labels are wrong; benchmarks/degrade.py has 3,000 users."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lcb.evaluate.offline.log_sources import open_source
from lcb.evaluate.offline.split import Plan
from lcb.evaluate.worlds.logged import LoggedWorld
from support.truth import true_gain

PLAN = Plan(n_train_users=350, n_test_users=50, n_steps=20, n_classes=10)


def gain(people, algorithm="lcb-auto", flipped=0.0):
    """The true gain over Population LinUCB, as a factor."""
    world = LoggedWorld(people=people, seed=1)
    log = world.write_log(400, 40, exactly=True)
    wrong = np.random.default_rng(0).random(len(log.user)) < flipped
    source = open_source(replace(log, reward=np.abs(log.reward - wrong).astype(np.float32)), "queue", "labels")
    return 1 + true_gain(world, source, PLAN, algorithm, n_users=600) / 100


def test_where_all_are_alike_it_is_within_one_percent_of_population_linucb():
    assert gain("alike") > 0.99


def test_where_all_are_unique_it_is_within_two_percent_of_the_better_of_individual_linucb_and_the_mixed_model():
    assert gain("unique") > 0.98 * max(gain("unique", name) for name in ("linucb-individual", "mixed-model"))


def test_with_two_of_thirty_labels_flipped_it_keeps_two_thirds_of_its_gain():
    assert gain("classes", flipped=2 / 30) - 1 > 2 / 3 * (gain("classes") - 1) > 0.1
