"""First pass of an import: checks rows, codes users and items, writes the good rows to a temporary file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.errors import InputError
from lcb.progress import Progress
from lcb.runtime.memory import need_memory
from lcb.storage.importing.bad_rows import Check, Problems, show_cell
from lcb.storage.importing.cells import Orders, to_numbers
from lcb.storage.importing.ids import Ids
from lcb.storage.importing.items import Gathered
from lcb.storage.importing.sorting import Arrays, Spill
from lcb.storage.importing.source import ROLES, Chunk, Source
from lcb.storage.logs.items import Items
from lcb.words import format_count

_NUMBERS = ("rating", "reward", "propensity")
_SHORTEST = 8  # bytes of a row of a text file
_ROW_BYTES, _FEATURE_BYTES = 100, 12  # of a row while it is sorted and written


class Reading:
    """Reads a source once; memory grows with users and items, not with rows."""

    def __init__(self, source: Source, spill: Spill, like: float | None) -> None:
        self.source = source
        self.spill = spill
        self.like = like
        self.problems = Problems()
        self.n_rows = 0
        self.features: tuple[str, ...] = ()
        self.orders = Orders()
        self.gathered = Gathered(source.separator)
        self.users = Ids(source.names.get("user", "user"), whole="user" in source.whole)
        self.items = Ids(source.names.get("item", "item"), whole="item" in source.whole)
        if source.items is not None:
            self.items.enter(source.items.names)

    def read(self, progress: Progress) -> None:
        """Read the whole source."""
        for chunk in self.source.chunks(self.problems):
            arrays = self._check_chunk(chunk)
            if not self.n_rows:
                self._need_memory()
            self.users.count(arrays["user"])
            self.items.count(arrays["item"])
            if len(arrays["user"]):
                self.spill.add(arrays)
            self.n_rows += len(chunk.rows)
            progress(f"reading {self.source.name}", self.n_rows, self.source.n_rows)
        self.n_rows += self.problems.n_unread

    def _need_memory(self) -> None:
        """Estimate the memory of the rows that are sorted at a time, once their columns are known."""
        size = sum(file.stat().st_size for file in self.source.files if file.is_file())
        n_rows = min(self.source.n_rows or size // _SHORTEST or self.spill.most_rows, self.spill.most_rows)
        need_memory(
            n_rows * (_ROW_BYTES + _FEATURE_BYTES * len(self.features)),
            f"{n_rows:,} rows at a time, with {format_count(len(self.features), 'number')} kept of each,",
            "keep fewer --features, or numbers of items as --item-features, once for each item",
        )

    def rank_users(self) -> tuple[Any, NDArray[np.int32], NDArray[np.int64]]:
        """Return the users with events, sorted by name, the rank of each code, and the event count of each rank."""
        names = self.users.names()
        met = np.flatnonzero(self.users.counts)
        order = met[pc.sort_indices(names.take(pa.array(met))).to_numpy()]
        return names.take(pa.array(order)), _invert_order(order, len(names)), self.users.counts[order]

    def build_items(self) -> tuple[Items, NDArray[np.int32], int]:
        """Return the items, the index of each code among them, and how many have different categories in the rows."""
        known, names = self.source.items, self.items.names()
        if known is not None:
            n_events = self.items.counts[: len(known.names)]
            kept = np.flatnonzero(n_events) if self.source.only_met else np.arange(len(known.names))
            return known.take(kept) if self.source.only_met else known, _invert_order(kept, len(names)), 0
        met = np.flatnonzero(self.items.counts)
        order = met[pc.sort_indices(names.take(pa.array(met))).to_numpy()]
        items, n_differing = self.gathered.items(names, order, self.source.name)
        return items, _invert_order(order, len(names)), n_differing

    def _check_chunk(self, chunk: Chunk) -> Arrays:
        """Return the good rows of a chunk."""
        check = Check(chunk.path, chunk.rows, self.problems)
        columns, named = chunk.columns, self.source.names
        arrays: Arrays = {"user": self.users.codes(columns["user"], check)}
        arrays["item"] = self._code_items(columns["item"], check)
        if "order" in columns:
            arrays["order"] = self.orders.values(columns["order"], named.get("order", "order"), check)
        for role in _NUMBERS:
            if role in columns:
                arrays[role] = to_numbers(columns[role], named.get(role, role), check)
        if "propensity" in arrays:
            _check_propensity(arrays["propensity"], named.get("propensity", "propensity"), check)
        if self.like is not None:
            arrays["reward"] = self._reward_likes(arrays, chunk.path)
        self.features = tuple(name for name in columns if name not in ROLES)
        arrays |= {name: to_numbers(columns[name], name, check) for name in self.features}
        if not check.good.all():
            arrays = {name: values[check.good] for name, values in arrays.items()}
        if "categories" in columns and self.source.items is None:
            self.gathered.add(arrays["item"], columns["categories"].filter(pa.array(check.good)))
        if "title" in columns and self.source.items is None:
            self.gathered.add_titles(arrays["item"], columns["title"].filter(pa.array(check.good)))
        return arrays

    def _code_items(self, column: Any, check: Check) -> NDArray[np.int32]:
        codes = self.items.codes(column, check)
        known = self.source.items
        if known is not None and len(self.items) > len(known.names):
            said = f"which is not in {known.path}"
            unknown = codes >= len(known.names)
            check.refuse(unknown, f"item {said}", lambda i: f"item is {show_cell(column, i)}, {said}")
        return codes

    def _reward_likes(self, arrays: Arrays, path: str) -> NDArray[np.float32]:
        if "rating" not in arrays:
            raise InputError(f"--like needs ratings, and {path} has none; name their column, or leave --like out")
        if "reward" in arrays:
            raise InputError(f"--like turns ratings into rewards, but {path} already has rewards; leave one out")
        return (arrays["rating"] >= self.like).astype(np.float32)


def _check_propensity(values: NDArray[np.float32], name: str, check: Check) -> None:
    said = "an item that was shown has a probability above 0"
    check.refuse(values == 0, f"{name} is 0", lambda i: f"{name} is 0; {said}")
    outside = (values < 0) | (values > 1)
    wanted = "a probability in (0, 1] is wanted"
    check.refuse(outside, f"{name} is outside (0, 1]", lambda i: f"{name} is {values[i]:g}; {wanted}")


def _invert_order(order: NDArray[np.int64], n: int) -> NDArray[np.int32]:
    """Return the index of each code in `order`; 0 for codes not in it, which have no rows."""
    place = np.zeros(n, np.int32)
    place[order] = np.arange(len(order))
    return place
