"""Drill 46: a Ray cluster of three nodes loses a worker and a node in the middle of a step, spills, meets another
version and a wrong token, and goes away; a job that is sent to a head learns there; evaluations give the numbers of one
machine; and every way in which a cluster cannot be used is explained.

Its short form is `tests/cluster/test_ray.py`, with one node.
"""

from __future__ import annotations

from pathlib import Path

from support.harness import LONG
from support.ray_runs import run_cases

if LONG:

    def test_faults_on_three_nodes():
        run_cases(Path(__file__).parents[1] / "cluster" / "node_cases.py", timeout=900)

    def test_a_job_is_sent_to_a_head():
        run_cases(Path(__file__).parents[1] / "cluster" / "job_cases.py", timeout=600)

    def test_what_cannot_be_used_is_explained():
        run_cases(Path(__file__).parents[1] / "cluster" / "refusal_cases.py", timeout=1200)

    def test_evaluations_are_those_of_one_machine():
        run_cases(Path(__file__).parents[1] / "cluster" / "evaluation_cases.py", timeout=1200)
