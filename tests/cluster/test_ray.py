"""Runs the cases on a real Ray cluster of one node."""

from __future__ import annotations

from pathlib import Path

from support.ray_runs import run_cases


def test_learning_on_a_ray_cluster():
    run_cases(Path(__file__).with_name("ray_cases.py"), timeout=900)
