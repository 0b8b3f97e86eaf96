"""An imported log in memory, for evaluation and learning.

A log on disk is a folder, written by `lcb import` or by hand:

    events.parquet     user, item, and where known: order, rating, reward, propensity, features, offered, distribution
    items.parquet      item, and where known: categories (indices into categories.json, or names), title, features
    categories.json    ["sport", "arts", ...]

or one file `clicks.parquet` with `clicks.items.parquet` and `clicks.categories.json` beside it.  Only events are
needed: without items.parquet the items are those of the events and have no categories.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from lcb.errors import InputError
from lcb.progress import Progress, silent
from lcb.runtime.memory import need_memory
from lcb.storage.logs.events import read_events
from lcb.storage.logs.files import LogFiles
from lcb.storage.logs.items import read_items
from lcb.storage.logs.offers import Offers
from lcb.storage.tables.row_errors import name_file_in_errors

Codes = NDArray[np.int32]
Numbers = NDArray[np.float32]
_EVENT_COPIES, _ITEM_COPIES = 4, 5  # of what the files hold, while it is decoded, converted and put into order


@dataclass(frozen=True)
class Log:
    """Events sorted by user, then order; users are coded 0, 1, ... in the order of their names.

    Items are coded in the order of items.parquet, or of their names if there is no such table.

    An event costs 8 bytes, and 4 to 8 for each of `order`, `rating`, `reward`, `propensity`, each feature and each item
    on offer.
    Names are pyarrow arrays of int64 or strings: `log.users[3].as_py()`.
    """

    users: Any  # (n_users,) names
    items: Any  # (n_items,) names, also of items without events
    categories: tuple[str, ...]  # names; () if the log has no categories
    item_categories: csr_array  # (n_items, n_categories) of bool; an item may have none
    user: Codes  # (n_events,) codes, never falling
    item: Codes  # (n_events,) codes
    order: NDArray[Any]  # (n_events,) int64 or float64, never falling within a user: a time, or a position
    rating: Numbers | None = None  # (n_events,) as the user gave it
    reward: Numbers | None = None  # (n_events,) what a bandit would have got
    propensity: Numbers | None = None  # (n_events,) in (0, 1], of the item under the policy that logged it
    x: Numbers | None = None  # (n_events, n_features) features kept with the events
    features: tuple[str, ...] = ()  # names of the columns of x
    titles: Any = None  # (n_items,) strings, or None
    item_features: Numbers | None = None  # (n_items, m) numbers of the items' own, such as an embedding
    inputs: tuple[str, ...] = ()  # names of the columns of item_features
    offers: Offers | None = None  # the items on offer at each event; None: not known
    notes: tuple[str, ...] = ()  # peculiarities of this log, one sentence each

    @property
    def n_users(self) -> int:
        return len(self.users)

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def n_events(self) -> int:
        return len(self.user)

    @cached_property
    def start(self) -> NDArray[np.int64]:
        """(n_users + 1,): the events of user u are start[u] to start[u + 1]."""
        return np.searchsorted(self.user, np.arange(self.n_users + 1))

    @property
    def counts(self) -> NDArray[np.int64]:
        """(n_users,): the number of events of each user."""
        return np.diff(self.start)

    def labels(self, like: float | None = None) -> Numbers:
        """Return 1 for each event whose rating is at least `like`, else 0; without `like`, the rewards of the log."""
        if like is None:
            if self.reward is None:
                remedy = "read it as choices" if self.rating is None else "say from which rating on an item is liked"
                raise InputError(f"the log has no rewards; {remedy}")
            return self.reward
        if self.rating is None:
            raise InputError(f"like {like:g} is a rating, and the log has none; leave it out")
        return (self.rating >= like).astype(np.float32)

    @property
    def arm_kind(self) -> str:
        """What an arm of `arms` is: "category", or "item" in a log without categories."""
        return "category" if self.categories else "item"

    def arms(self, limit: int = 100) -> tuple[tuple[str, ...], csr_array]:
        """Return the names of the arms, and which items belong to each, (n_items, n_arms) of bool.

        Arms are the categories; in a log without categories, the items, at most the `limit` with the most events.
        """
        if self.categories:
            return self.categories, self.item_categories
        often = np.argsort(-np.bincount(self.item, minlength=self.n_items), kind="stable")[:limit]
        chosen = np.sort(often)
        ones = np.ones(len(chosen), bool)
        matrix = csr_array((ones, (chosen, np.arange(len(chosen)))), shape=(self.n_items, len(chosen)))
        return tuple(str(self.items[int(i)].as_py()) for i in chosen), matrix

    def of_users(self, codes: ArrayLike) -> Log:
        """Return the log of these users only, in this order, recoded 0, 1, ...; items keep their codes."""
        chosen = np.asarray(codes, dtype=np.int64)
        counts = self.counts[chosen]
        ends = np.cumsum(counts)
        rows = np.repeat(self.start[chosen] - ends + counts, counts) + np.arange(counts.sum())
        parts = {name: getattr(self, name) for name in ("item", "order", "rating", "reward", "propensity", "x")}
        taken: dict[str, Any] = {name: None if values is None else values[rows] for name, values in parts.items()}
        taken["offers"] = None if self.offers is None else self.offers.take(rows)
        user = np.repeat(np.arange(len(chosen), dtype=np.int32), counts)
        return replace(self, users=self.users.take(chosen), user=user, **taken)


def open_log(path: str | os.PathLike[str], *, progress: Progress | None = None, with_offers: bool = True) -> Log:
    """Open a log that `lcb import` wrote, or files of the same form.

    Raises InputError, with counts, for missing columns or values, values of the wrong type, items that are not in
    items.parquet, categories that are not in categories.json, propensities outside (0, 1] and damaged files.  `notes`
    mentions repeated events, categories without events and items without categories.  `with_offers=False` saves the
    memory of `offers`, which only off-policy estimates use.

    >>> import json, pyarrow as pa, pyarrow.parquet as pq
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     events = {"user": [7, 3, 3], "order": [0, 1, 0], "item": [1, 1, 2], "rating": [5, 4, 2]}
    ...     items = {"item": [1, 2], "categories": [[0, 1], [0]]}
    ...     pq.write_table(pa.table(events), Path(folder, "events.parquet"))
    ...     pq.write_table(pa.table(items), Path(folder, "items.parquet"))
    ...     _ = Path(folder, "categories.json").write_text(json.dumps(["sport", "arts"]))
    ...     log = open_log(folder)
    >>> log.users.to_pylist(), log.user, log.item, log.labels(like=4)
    ([3, 7], array([0, 0, 1], dtype=int32), array([1, 0, 0], dtype=int32), array([0., 1., 1.], dtype=float32))
    >>> log.categories, log.item_categories.toarray().astype(int).tolist()
    (('sport', 'arts'), [[1, 1], [1, 0]])
    """
    files = LogFiles.find(path)
    _need_memory(files)
    report = progress or silent
    items = read_items(files)
    events = read_events(files, items, report, with_offers)
    return Log(
        users=events.users,
        items=events.items,
        categories=items.categories,
        item_categories=items.matrix(events.items),
        user=events.user,
        item=events.item,
        order=events.order,
        rating=events.numbers.get("rating"),
        reward=events.numbers.get("reward"),
        propensity=events.numbers.get("propensity"),
        x=events.x,
        features=events.features,
        titles=items.titles,
        item_features=items.vectors,
        inputs=items.inputs,
        offers=events.offers,
        notes=(*events.notes, *items.notes(np.bincount(events.item, minlength=len(events.items)))),
    )


def _need_memory(files: LogFiles) -> None:
    """Estimate the memory of opening a log from the sizes that its files declare."""
    n_bytes = 0.0
    for path, copies in ((files.events, _EVENT_COPIES), (files.items, _ITEM_COPIES)):
        if path.is_file():
            with name_file_in_errors(path):
                about = pq.ParquetFile(path).metadata
            cells = about.num_rows * about.num_columns
            stored = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
            n_bytes += copies * max(8.0 * cells, stored)
    need_memory(
        n_bytes,
        f"the events and items of {files.events.parent}",
        "import fewer events, or items with fewer numbers of their own",
    )
