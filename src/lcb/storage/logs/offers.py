"""The items on offer at each event of a log, and the probability that each had: columns `offered` and `distribution`.

`lcb log export` writes them.  Where `offered` is null, the first items of items.parquet were on offer: as many as
`distribution` has values, else as many as column `n_arms` says, else all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.errors import InputError
from lcb.storage.logs.items import list_first
from lcb.storage.tables.arrow import is_list
from lcb.storage.tables.row_errors import name_file_in_errors

_TOLERANCE = 1e-4  # between a propensity and the value of the distribution


@dataclass(frozen=True, eq=False)
class Offers:
    """The offers of n events, as positions in two long arrays, which selections of events share."""

    items: NDArray[np.int32] = field(repr=False)  # codes; all items come first, for events that name none
    probabilities: NDArray[np.float32] = field(repr=False)
    first: NDArray[np.int64] = field(repr=False)  # (n,) where the items of an event begin
    first_probability: NDArray[np.int64] = field(repr=False)  # (n,) -1: not known
    size: NDArray[np.int64] = field(repr=False)  # (n,)

    def of_event(self, e: int) -> tuple[NDArray[np.int32], NDArray[np.float32] | None]:
        """Return the codes of the items on offer at an event, and their probabilities; None if not known."""
        begin, at, size = self.first[e], self.first_probability[e], self.size[e]
        return self.items[begin : begin + size], None if at < 0 else self.probabilities[at : at + size]

    def take(self, rows: NDArray[Any]) -> Offers:
        """Select events by index or mask."""
        parts = (self.first[rows], self.first_probability[rows], self.size[rows])
        return replace(self, first=parts[0], first_probability=parts[1], size=parts[2])

    def check(self, item: NDArray[np.int32], propensity: NDArray[np.float32] | None, path: str) -> None:
        """Raise InputError if an item was shown without being on offer, or with another probability."""
        for e, code in enumerate(item.tolist()):
            offered, p = self.of_event(e)
            places = np.flatnonzero(offered == code)
            if len(places) != 1:
                found = "not among the items" if not len(places) else "more than once among the items"
                raise InputError(f"{path} row {e}: the item shown is {found} on offer; export the log again")
            if p is not None and propensity is not None and abs(p[places[0]] - propensity[e]) > _TOLERANCE:
                raise InputError(
                    f"{path} row {e}: the item shown has probability {p[places[0]]:g} in column distribution, but "
                    f"propensity {propensity[e]:g}; export the log again"
                )


def read_offers(file: Any, names: Any, path: str) -> Offers | None:
    """Read the offers from an open Parquet file, in the order of its rows; None if it has no such columns.

    `names` are the names of all items, in the order of their codes.
    """
    schema = file.schema_arrow
    if not all(name in schema.names and is_list(schema.field(name).type) for name in ("offered", "distribution")):
        return None
    columns = [name for name in ("offered", "distribution", "n_arms") if name in schema.names]
    items, probabilities = [np.arange(len(names), dtype=np.int32)], []
    first, first_probability, sizes = [], [], []
    n_items, n_probabilities, n_rows = len(names), 0, 0
    with name_file_in_errors(path):
        batches = file.iter_batches(columns=columns)
        for batch in batches:
            offered, distribution = batch.column("offered"), batch.column("distribution")
            named, known = (~column.is_null().to_numpy(zero_copy_only=False) for column in (offered, distribution))
            n_offered, n_known = _count(offered), _count(distribution)
            whole = batch.column("n_arms").to_numpy(zero_copy_only=False) if "n_arms" in columns else len(names)
            size = np.where(named, n_offered, np.where(known, n_known, whole)).astype(np.int64)
            wrong = np.flatnonzero((known & (n_known != size)) | (size < 1) | (~named & (size > len(names))))
            if len(wrong):
                raise InputError(
                    f"{path} row {n_rows + int(wrong[0])}: columns offered and distribution do not have one value for "
                    "each item on offer; export the log again"
                )
            first.append(np.where(named, n_items + np.cumsum(n_offered) - n_offered, 0))
            first_probability.append(np.where(known, n_probabilities + np.cumsum(n_known) - n_known, -1))
            sizes.append(size)
            items.append(_code(offered.flatten(), names, path))
            probabilities.append(distribution.flatten().cast(pa.float32()).to_numpy(zero_copy_only=False))
            n_items, n_probabilities = n_items + len(items[-1]), n_probabilities + len(probabilities[-1])
            n_rows += len(size)
    return Offers(*(np.concatenate(parts) for parts in (items, probabilities, first, first_probability, sizes)))


def _count(lists: Any) -> NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False), np.int64)


def _code(ids: Any, names: Any, path: str) -> NDArray[np.int32]:
    found = pc.index_in(ids.cast(names.type), value_set=names)
    if found.null_count:
        unknown = list_first(pc.unique(ids.filter(found.is_null()))[:3].to_pylist())
        raise InputError(f"{path} column offered names items that are not in the table of items, such as {unknown}")
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int32)
