"""`lcb study` as it is typed, with a running service."""

from __future__ import annotations

import json

from support.harness import serving


def test_simulated_visitors_are_let_in_and_the_results_printed(lcb, tmp_path):
    recommenders = [{"name": "lcb"}, {"name": "population", "bandit": "linucb", "scope": "everyone"}]
    with serving(tmp_path, items="headlines", recommenders=recommenders) as server:
        printed = lcb("study", "--visitors", 8, "--url", server.address)
        results = json.loads(lcb("study", "--url", server.address, "--json", "-").out)
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.splitlines()[1].split() == ["recommender", "visitors", "simulated", "mean", "deviation", "paper"]
    assert sum(one["users"] for one in results["recommenders"]) == 8
    assert sum(one["simulated"] for one in results["recommenders"]) == 8


def test_a_service_without_pages_has_no_study(lcb, tmp_path):
    with serving(tmp_path, pages=False) as server:
        outcome = lcb("study", "--url", server.address)
    assert outcome.code == 2
    assert outcome.err.startswith(f"lcb: {server.address}: ")
    assert outcome.err.count("\n") == 1
