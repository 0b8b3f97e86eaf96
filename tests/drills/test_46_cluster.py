"""Drill 46: a Ray cluster of three nodes loses a worker and a node in the middle of a step, spills, meets another
version and a wrong token, and goes away; a job that is sent to a head learns there.

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
