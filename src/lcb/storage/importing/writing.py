"""Writes the three files of a log, all or none: to temporary files, which are then renamed."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lcb.errors import InputError, OutputError
from lcb.storage.files import check_writable, is_same_file, name_temporary
from lcb.storage.importing.sorting import Arrays
from lcb.storage.logs.files import FEATURES, INPUTS, STAMP, LogFiles
from lcb.storage.logs.items import Items

_GROUP_ROWS = 1 << 20
_STAMP_ROWS = 1 << 14  # summed up at a time


def check_place(files: LogFiles, sources: Sequence[Path]) -> None:
    """Refuse to overwrite a file that is being read or was not written by an import."""
    targets = (files.events, files.items, files.categories)
    for target in targets:
        for source in sources:
            if is_same_file(target, source):
                raise InputError(f"{target} would be overwritten while it is read; give another --out")
    there = [target for target in targets if target.exists()]
    if there and not _was_imported(files.events):
        raise OutputError(f"{there[0]} exists and was not written by an import; move it away, or give another --out")
    if files.events.parent.is_dir():
        for target in targets:
            check_writable(target)


class LogWriter:
    """Writes events part by part, then items and categories; `finish` renames all into place."""

    def __init__(self, files: LogFiles, items: Items, users: Any, features: Sequence[str]) -> None:
        self.files = files
        self.items = items
        self.users = users
        self.features = tuple(features)
        self.stamp = _compute_stamp(items)
        self.n_events = 0
        self.columns: tuple[str, ...] = ()
        self._beside = {path: name_temporary(path) for path in (files.items, files.categories, files.events)}
        self._writer: Any = None

    def add(self, arrays: Arrays) -> None:
        """Write rows sorted by user and order, with names in place of codes."""
        table = pa.table({name: self._build_column(name, values) for name, values in arrays.items()})
        if self._writer is None:
            self.columns = tuple(table.column_names)
            metadata = {STAMP: self.stamp, FEATURES: json.dumps(self.features).encode()}
            self._writer = pq.ParquetWriter(
                self._beside[self.files.events],
                table.schema.with_metadata(metadata),
                compression="zstd",
                write_page_checksum=True,
                write_statistics=["user"],
                use_dictionary=[name for name in table.column_names if name != "order"],
            )
        self._writer.write_table(table.cast(self._writer.schema), row_group_size=_GROUP_ROWS)
        self.n_events += table.num_rows

    def finish(self) -> None:
        self._writer.close()
        pq.write_table(_build_item_table(self.items, self.stamp), self._beside[self.files.items], compression="zstd")
        text = json.dumps(list(self.items.categories), indent=0, ensure_ascii=False) + "\n"
        self._beside[self.files.categories].write_text(text, encoding="utf-8")
        for path, beside in self._beside.items():
            os.replace(beside, path)

    def forget(self) -> None:
        """Delete the temporary files."""
        if self._writer is not None:
            with suppress(OSError):  # a full disk is already reported
                self._writer.close()
            self._writer.is_open = False
        for beside in self._beside.values():
            beside.unlink(missing_ok=True)

    def _build_column(self, name: str, values: Any) -> Any:
        if name == "user":
            return self.users.take(pa.array(values))
        if name == "item":
            return self.items.names.take(pa.array(values))
        return pa.array(values)


@contextmanager
def open_writer(files: LogFiles, items: Items, users: Any, features: Sequence[str]) -> Iterator[LogWriter]:
    """Open a writer whose files are renamed into place at the end, or deleted after an error."""
    writer = LogWriter(files, items, users, features)
    try:
        yield writer
        writer.finish()
    except OSError as error:
        words = f"{files.events} could not be written ({error.strerror or error})"
        raise OutputError(f"{words}; check the folder and its permissions") from None
    finally:
        writer.forget()


def _build_item_table(items: Items, stamp: bytes) -> Any:
    columns: dict[str, Any] = {"item": items.names}
    if items.categories:
        columns["categories"] = pa.ListArray.from_arrays(pa.array(items.start, pa.int32()), pa.array(items.codes))
    if items.titles is not None:
        columns["title"] = items.titles
    metadata = {STAMP: stamp}
    if items.vectors is not None:
        columns["features"] = pa.FixedSizeListArray.from_arrays(pa.array(items.vectors.ravel()), items.vectors.shape[1])
        metadata[INPUTS] = json.dumps(items.inputs).encode()
    return pa.table(columns).replace_schema_metadata(metadata)


def _compute_stamp(items: Items) -> bytes:
    """Return a digest of items and categories, by which `open_log` notices items of another import."""
    table, digest = _build_item_table(items, b""), _Digest("\n".join(items.categories).encode() + b"\0")
    with pa.PythonFile(digest, mode="w") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, _STAMP_ROWS)
    return digest.sum.hexdigest()[:32].encode()


class _Digest(io.RawIOBase):
    """A file whose bytes are only summed up."""

    def __init__(self, begin: bytes) -> None:
        self.sum = hashlib.sha256(begin)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sum.update(data)
        return len(data)


def _was_imported(events: Path) -> bool:
    try:
        return STAMP in (pq.read_schema(events).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def count_within_users(user: Any) -> Any:
    """Return the index of each row among the rows of its user, which are adjacent.

    >>> count_within_users(np.array([3, 3, 5, 5, 5])).tolist()
    [0, 1, 0, 1, 2]
    """
    starts = np.flatnonzero(np.concatenate([[True], user[1:] != user[:-1]]))
    return np.arange(len(user)) - np.repeat(starts, np.diff(np.append(starts, len(user))))
