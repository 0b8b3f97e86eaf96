"""Loaders for public data sets: files as downloaded -> the log that `lcb import` writes.

To add a set, write a module with a `DATASET` and its test, and name the module here.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from lcb.datasets.dataset import Dataset

_MODULES = ("movielens", "mind", "kuairand", "open_bandit", "goodbooks", "folder")
_LOADED: tuple[Dataset, ...] = tuple(import_module(f"lcb.datasets.{name}").DATASET for name in _MODULES)
DATASETS = {dataset.name: dataset for dataset in _LOADED}


def find_dataset(folder: Path) -> Dataset | None:
    """Return the first data set whose files are in this folder, or None."""
    return next((dataset for dataset in DATASETS.values() if dataset.is_in(folder)), None)
