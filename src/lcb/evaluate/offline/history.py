"""Reads the labels of an imported log as a history to learn from, with features fitted on its categories."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lcb.evaluate.offline.labels import Reading, default_reading, read_labels
from lcb.event_log import EventLog
from lcb.features import FeatureMap, fit_features
from lcb.progress import Progress, silent
from lcb.storage.logs.log import open_log


def read_history(
    path: Path, features: str, *, reading: Reading | None = None, like: float | None = None, progress: Progress = silent
) -> tuple[EventLog, FeatureMap]:
    """Return all labels of the log's users, and the map from categories to features (`one-hot`, `pca:6+1`)."""
    log = open_log(path, progress=progress)
    labels = read_labels(log, reading or default_reading(log, like), like)
    users = np.flatnonzero(labels.n_events > 0)
    fitted = fit_features(features, labels.arms, *labels.count_items(users))
    return labels.history(users, fitted.arms, fitted.names), fitted
