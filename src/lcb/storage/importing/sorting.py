"""Sorts any number of rows by user and time: writes them to disk, divides them by user, sorts each part in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lcb.errors import OutputError
from lcb.progress import Progress

MOST_ROWS = 1 << 21  # in memory at a time
_MOST_FILES = 200
Arrays = dict[str, NDArray[Any]]


class Spill:
    """Rows in their original order: in memory up to `most_rows`, beyond that in a file."""

    def __init__(self, folder: Path, most_rows: int = MOST_ROWS) -> None:
        self.folder = folder
        self.most_rows = most_rows
        self.n_rows = 0
        self._batches: list[Any] = []
        self._writer: Any = None

    def add(self, arrays: Arrays) -> None:
        batch = pa.record_batch(arrays)
        self.n_rows += batch.num_rows
        self._batches.append(batch)
        if self._writer is not None or self.n_rows > self.most_rows:
            self._flush()

    def parts(self, rank: NDArray[np.int32], counts: NDArray[np.int64], progress: Progress) -> Iterator[Arrays]:
        """Yield all rows in parts; a user is in one part, users of a part come before those of the next.

        rank (n,)        the rank of each user code; column `user` of the parts holds ranks
        counts (n,)      the number of rows of the user with each rank
        """
        if self._writer is None:
            yield _to_arrays(pa.Table.from_batches([_rank_users(batch, rank) for batch in self._batches]))
            return
        self._writer.close()
        most = max(self.most_rows, -(-self.n_rows // _MOST_FILES))
        part_of = (np.cumsum(counts) - counts) // most
        part_of = np.searchsorted(np.unique(part_of), part_of).astype(np.int16)
        files = self._divide(rank, part_of, progress)
        done = 0
        for path in files:
            with pa.memory_map(str(path)) as file:
                arrays = _to_arrays(pa.ipc.open_stream(file).read_all())
            path.unlink()
            yield arrays
            done += len(arrays["user"])
            progress("sorting", done, self.n_rows)

    def _flush(self) -> None:
        with report_full_disk(self.folder):
            if self._writer is None:
                self._writer = pa.ipc.new_stream(str(self.folder / "rows"), self._batches[0].schema)
            for batch in self._batches:
                self._writer.write_batch(batch)
        self._batches = []

    def _divide(self, rank: NDArray[np.int32], part_of: NDArray[np.int16], progress: Progress) -> list[Path]:
        """Write one file per part."""
        paths = [self.folder / f"part-{i}" for i in range(int(part_of.max()) + 1)]
        done = 0
        with ExitStack() as stack, report_full_disk(self.folder):
            source = stack.enter_context(pa.OSFile(str(self.folder / "rows")))
            reader = pa.ipc.open_stream(source)
            writers = [stack.enter_context(pa.ipc.new_stream(str(path), reader.schema)) for path in paths]
            for raw in reader:
                batch = _rank_users(raw, rank)
                part = part_of[batch["user"].to_numpy()]
                order = np.argsort(part, kind="stable")
                ends = np.cumsum(np.bincount(part, minlength=len(paths)))
                divided = batch.take(pa.array(order))
                for i, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                    if end > start:
                        writers[i].write_batch(divided.slice(start, end - start))
                done += batch.num_rows
                progress("dividing", done, self.n_rows)
        (self.folder / "rows").unlink()
        return paths


def sort_by_user_and_order(arrays: Arrays) -> tuple[Arrays, int]:
    """Sort rows by user, then order (stable); also return how many rows were below a later one of the same user."""
    user = arrays["user"]
    rows = _sort_stable(user - user.min())
    if "order" not in arrays:
        return {name: values[rows] for name, values in arrays.items()}, 0
    order, sorted_user = arrays["order"][rows], user[rows]
    n_back = int(np.sum((sorted_user[1:] == sorted_user[:-1]) & (order[1:] < order[:-1])))
    if n_back:
        rows = rows[_sort_by_both(sorted_user, order)]
    return {name: values[rows] for name, values in arrays.items()}, n_back


def find_repeated(arrays: Arrays) -> NDArray[np.bool_]:
    """Mark rows whose user, item and, if there is one, order are those of a later row; rows are sorted already."""
    user, item = arrays["user"], arrays["item"]
    found = np.zeros(len(user), bool)
    rows = np.arange(len(user))
    if "order" in arrays:
        order = arrays["order"]
        tied = np.flatnonzero((user[1:] == user[:-1]) & (order[1:] == order[:-1]))
        if not len(tied):
            return found
        rows = np.union1d(tied, tied + 1)
        sorted_rows = rows[np.lexsort((item[rows], order[rows], user[rows]))]
        same = order[sorted_rows[1:]] == order[sorted_rows[:-1]]
    else:
        sorted_rows = _sort_by_both(user, item)
        same = np.ones(max(len(rows) - 1, 0), bool)
    for values in (user, item):
        same &= values[sorted_rows[1:]] == values[sorted_rows[:-1]]
    found[sorted_rows[:-1][same]] = True
    return found


@contextmanager
def report_full_disk(folder: Path) -> Iterator[None]:
    """Turn an OSError while spilling into an OutputError that says how much space is needed."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{folder.parent} could not be written ({error.strerror or error}); "
            "an import needs space for two copies of the log there"
        ) from None


def _rank_users(batch: Any, rank: NDArray[np.int32]) -> Any:
    return batch.set_column(batch.schema.get_field_index("user"), "user", pa.array(rank[batch["user"].to_numpy()]))


def _to_arrays(table: Any) -> Arrays:
    return {name: table[name].to_numpy() for name in table.column_names}


def _sort_stable(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the stable order of non-negative whole numbers; values below 65,536 are sorted by counting."""
    small = not len(values) or values.max() < 1 << 16
    return np.argsort(values.astype(np.uint16) if small else values, kind="stable")


def _sort_by_both(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.int64]:
    """Return the stable order by first, then second; both are packed into one number if they fit into 63 bits."""
    if not len(first) or second.dtype.kind == "f":
        return np.lexsort((second, first))
    low, span = int(second.min()), int(second.max()) - int(second.min()) + 1
    base = int(first.min())
    if (int(first.max()) - base + 1) * span >= 1 << 63:
        return np.lexsort((second, first))
    return np.argsort((first.astype(np.int64) - base) * span + (second - low), kind="stable")
