"""Loaders for public data sets: files as downloaded -> the log that `lcb import` writes."""

from __future__ import annotations

from pathlib import Path

from lcb.datasets.dataset import Dataset
from lcb.datasets.folder import FOLDER
from lcb.datasets.goodbooks import GOODBOOKS
from lcb.datasets.kuairand import KUAIRAND
from lcb.datasets.mind import MIND
from lcb.datasets.movielens import MOVIELENS
from lcb.datasets.open_bandit import OPEN_BANDIT

DATASETS = {made.name: made for made in (MOVIELENS, MIND, KUAIRAND, OPEN_BANDIT, GOODBOOKS, FOLDER)}


def found_in(folder: Path) -> Dataset | None:
    """The set whose files lie in this folder, if any."""
    return next((dataset for dataset in DATASETS.values() if dataset.is_in(folder)), None)
