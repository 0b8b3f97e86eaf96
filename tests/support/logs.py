"""Logs for tests, made in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from lcb.storage.logs.log import Log


def make_log(user, item, categories_of, n_categories, **columns):
    """Return a log of events in the order given; `categories_of[i]` are the categories of item i."""
    user, item = np.asarray(user, np.int32), np.asarray(item, np.int32)
    order = np.argsort(user, kind="stable")
    matrix = np.zeros((len(categories_of), n_categories), bool)
    for i, chosen in enumerate(categories_of):
        matrix[i, chosen] = True
    columns = {name: np.asarray(values, np.float32)[order] for name, values in columns.items()}
    return Log(
        users=pa.array(np.arange(user.max() + 1)),
        items=pa.array(np.arange(len(categories_of))),
        categories=tuple(f"c{i}" for i in range(n_categories)),
        item_categories=csr_array(matrix),
        user=user[order],
        item=item[order],
        order=np.arange(len(user)),
        **columns,
    )
