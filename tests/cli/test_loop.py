"""Serve, export, evaluate another policy, serve that policy: the estimate covers what then happens.

`benchmarks/loop.py` repeats this 30 times with the uniform share of new services.
"""

from __future__ import annotations

import json

import pytest

from lcb.serve.config.recommenders import RecommenderSpec
from support.served_world import read_interval, serve_people

N_PEOPLE = 100
LINUCB = {"name": "all", "bandit": "linucb", "scope": "everyone"}  # without the uniform share it never draws


@pytest.fixture
def evaluate(lcb):
    def run(path, method):
        size = ("--steps", 20, "--test-users", 80, "--seeds", 1, "--workers", 1)
        found = lcb("evaluate", path, "--method", method, "--algorithms", "random", *size, "--json", "out.json")
        assert found.code == 0, found
        with open("out.json") as file:
            return found.out, json.load(file)

    return run


def test_an_estimate_from_a_served_log_covers_what_the_policy_then_does(evaluate, tmp_path):
    exported, logged = serve_people(tmp_path / "log", RecommenderSpec(**LINUCB, uniform=0.1), N_PEOPLE, seed=1)
    _, happened = serve_people(tmp_path / "random", RecommenderSpec("any", "uniform"), N_PEOPLE, seed=2)
    for method in ("ips", "snips", "dr"):
        out, told = evaluate(exported, method)
        support = told["results"][0]["diagnostics"]
        assert support["missing"] == 0, "exact, from the distributions"
        assert f"effective size {support['effective_size']:,.0f} of 1,600 events" in " ".join(out.split())
        assert told["answer"]["algorithm"] == "random"
        low, high = read_interval(told, "random")
        assert low < happened < high < logged


def test_control_without_the_uniform_share_the_policy_is_refused(evaluate, tmp_path):
    exported, _ = serve_people(tmp_path / "log", RecommenderSpec(**LINUCB, uniform=0.0), N_PEOPLE, seed=1)
    out, told = evaluate(exported, "ips")
    assert told["answer"] is None
    assert told["why"].startswith("random: the log never shows")
    assert told["results"][0]["diagnostics"]["missing"] > 0.5
    assert "random: no interval, because the log never shows" in out
    assert "effective size" in out
