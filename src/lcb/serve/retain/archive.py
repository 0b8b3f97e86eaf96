"""The archive of a log: Parquet files of the events that compactions have removed from the store.

    events/FIRST-LAST.parquet     the events as the store had them, with salt, digest and link: a piece of the chain
    rewards/FIRST-LAST.parquet    their rewards with user, item, features and propensity, as `lcb learn` reads them

A file that compaction has written ends in `.new` until the event `compact` is in the log; one that erasure has
rewritten ends in `.ERASURE.erased` until its `erase` event is.  `settle` finishes what a killed process has left:
the log says which of these files count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lcb.errors import OutputError, StoreError, StoreUnavailable
from lcb.serve.base_bodies import CompactBody
from lcb.serve.retain.folder import EVENTS, REWARDS, lock, make_folder, sync_folders
from lcb.serve.state.world_snapshot import read_base
from lcb.storage.store.base import Rewrite, Row, Seal, Store

NEW, ERASED = ".new", ".erased"
PART = 100_000  # events in one file, so that rewriting it after an erasure is quick
_GROUP = 10_000  # rows of a row group
_IN_FLIGHT = 1.0  # seconds
_CHECKED: dict[str, Any] = {"page_checksum_verification": True}  # else Arrow reads damaged pages without a word
SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("id", pa.string()),
        ("kind", pa.string()),
        ("user", pa.string()),
        ("model", pa.int64()),
        ("body", pa.binary()),
        ("salt", pa.binary()),
        ("digest", pa.binary()),
        ("link", pa.binary()),
    ]
)
REWARD_SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("item", pa.string()),
        ("reward", pa.float64()),
        ("propensity", pa.float64()),
        ("x", pa.list_(pa.float64())),
        ("seq", pa.int64()),
        ("decision", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("recommender", pa.string()),
        ("model", pa.int64()),
    ]
)


def build_missing(store_url: str, upto: int) -> StoreUnavailable:
    """Return the error of a compacted log whose archive nobody has named."""
    return StoreUnavailable(
        f"{store_url} was compacted up to event {upto}, and no folder of its archive is given; "
        "set archive in the settings, or give --archive"
    )


def read_archived_base(store: Store, folder: Path | None) -> CompactBody | None:
    """Return the newest compaction of a log; raise StoreUnavailable if the archive in `folder` goes further than it.

    Everything that reads or changes an archive begins here.  Files are listed before the log is read: they get their
    names after the event `compact`, so a compaction that runs meanwhile does not look like an archive of a later log.
    """
    last = 0
    if folder is not None:
        last = max((_read_name(path).last for path in _list_files(folder, ".parquet")), default=0)
    base = read_base(store)
    upto = 0 if base is None else base.upto
    if last > upto:
        was, after = (f"compacted up to event {upto}", f"after {upto} ") if upto else ("never compacted", "")
        raise StoreUnavailable(
            f"the archive {folder} goes on to event {last}, but this log was {was}: the archive is of a later state of "
            f"the log, or of another log; move its files {after}away, those of events and of rewards, or restore the "
            "store of the same time"
        )
    return base


class Part(NamedTuple):
    """A file of events, and the first and the last of them."""

    first: int
    last: int
    path: Path


class Archive:
    """The archive in a folder; `upto` is the last event of it that counts, as the log says."""

    def __init__(self, folder: Path, upto: int) -> None:
        self.folder, self.upto = folder, upto

    # Reading

    def list_parts(self) -> list[Part]:
        """Return the files of events up to `upto` in order; raise StoreUnavailable if one is missing or overlaps."""
        found = sorted(_read_name(path) for path in (self.folder / EVENTS).glob("*.parquet"))
        parts = [part for part in found if part.first <= part.last <= self.upto]
        at = 0
        for i, part in enumerate(parts):
            if part.first <= at:
                raise StoreUnavailable(
                    f"{part.path} overlaps {parts[i - 1].path}, which goes up to event {at}; remove the one that is a "
                    "copy, or restore store and archive from a backup of the same time"
                )
            if part.first != at + 1:
                break
            at = part.last
        if at != self.upto:
            raise self._build_incomplete(at)
        return parts

    def list_strangers(self) -> list[Path]:
        """Return what lies beside the files of events, except what an ended process has left."""
        parts = {part.path for part in self.list_parts()}
        found = sorted((self.folder / EVENTS).glob("*"))
        return [path for path in found if path not in parts and not path.name.endswith((NEW, ERASED))]

    def check_there(self) -> None:
        """Raise StoreUnavailable if the archive is not in its folder; creates nothing."""
        if not (self.folder / EVENTS).is_dir():
            raise self._build_incomplete(0)

    def _build_incomplete(self, at: int) -> StoreUnavailable:
        return StoreUnavailable(
            f"the archive {self.folder} has events up to {at}, but the log was compacted up to event {self.upto}; "
            "give the folder that lcb log compact has written (--archive, setting archive)"
        )

    def sealed_events(self, after: int, upto: int) -> Iterator[tuple[Row, Seal]]:
        """Yield the archived events after `after` and up to `upto`."""
        for part in self.list_parts():
            if part.last <= after or part.first > upto:
                continue
            with _naming(part.path), pq.ParquetFile(part.path, **_CHECKED) as file:
                for batch in file.iter_batches(_GROUP):
                    _check_rows(part.path, batch)
                    for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        if after < values[0] <= upto:
                            yield Row._make(values[:6]), Seal._make(values[6:])

    def sealed_events_of(self, user: str) -> list[tuple[Row, Seal]]:
        """Return the archived events of a user; every file is searched."""
        rows: list[tuple[Row, Seal]] = []
        for part in self.list_parts():
            with _naming(part.path):
                users = pq.read_table(part.path, columns=["user"], **_CHECKED).column("user")
                mask = pc.equal(users, user)
                if not pc.any(mask).as_py():
                    continue
                found = pq.read_table(part.path, **_CHECKED).filter(mask)
                _check_rows(part.path, found)
            for values in zip(*(column.to_pylist() for column in found.columns), strict=True):
                rows.append((Row._make(values[:6]), Seal._make(values[6:])))
        return rows

    def list_erased(self) -> set[int]:
        """Return the seqs of the archived events that are erased; reads two columns of every file."""
        seqs: set[int] = set()
        for part in self.list_parts():
            with _naming(part.path):
                found = pq.read_table(part.path, columns=["seq", "kind"], **_CHECKED)
            seqs.update(found.filter(pc.starts_with(found.column("kind"), "erased ")).column("seq").to_pylist())
        return seqs

    def list_rewards(self) -> dict[str, Path]:
        """Return all that is in the folder of rewards by name, except what an ended process has left."""
        found = sorted((self.folder / REWARDS).glob("*"))
        return {path.name: path for path in found if not path.name.endswith((NEW, ERASED))}

    def read_rewards(self, path: Path) -> Any:
        """Return a table of rewards."""
        with _naming(path):
            return pq.ParquetFile(path, **_CHECKED).read()

    # Erasure

    def prepare_erasure(self, name: str, rewrites: Mapping[int, tuple[Rewrite, bytes | None]]) -> list[Path]:
        """Write the files without a user, beside those they will replace; `rewrites` by seq, with their digests.

        If one cannot be written, none is left, and StoreUnavailable is raised.
        """
        prepared: list[Path] = []
        parts = [part for part in self.list_parts() if any(part.first <= seq <= part.last for seq in rewrites)]
        try:
            for part in parts:
                for path, change in ((part.path, _rewrite_events), (_of_rewards(part.path), _drop_rewards)):
                    if path.exists():
                        with _naming(path):
                            table = pq.read_table(path, **_CHECKED)
                        prepared.append(path.with_name(f"{path.name}.{name}{ERASED}"))
                        _write_table(prepared[-1], change(table, rewrites))
            sync_folders(self.folder)
        except (OutputError, StoreError) as error:
            for path in prepared:
                path.unlink(missing_ok=True)
            raise error if isinstance(error, StoreError) else StoreUnavailable(str(error)) from None
        return prepared

    def finish(self, prepared: list[Path]) -> None:
        """Put files in the place of those they replace."""
        for path in prepared:
            os.replace(path, _find_target(path))
        if prepared:
            sync_folders(self.folder)

    def settle(self, store: Store) -> None:
        """Finish what a killed compaction or erasure has left; call it within `erasing`.

        Files of a compaction that is under way stay as they are; it notices erasures itself.
        """
        for path in _list_files(self.folder, ERASED):
            if store.event(f"erase/{path.name.split('.')[-2]}") is not None:
                self.finish([path])
            else:
                path.unlink()
        waiting = list(_list_files(self.folder, NEW))
        done = [path for path in waiting if _read_name(_find_target(path)).last <= self.upto]
        self.finish(done)
        if len(done) < len(waiting):
            with lock(self.folder, "compacting") as ours:
                if ours and self._is_newest(store):
                    discard_new(self.folder)

    def _is_newest(self, store: Store) -> bool:
        """Whether no compaction came since `upto` was read; called while none can begin."""
        if not store.inline:
            time.sleep(_IN_FLIGHT)  # what a killed process has sent to the server may still be stored
        base = read_base(store)
        return self.upto == (0 if base is None else base.upto)

    @contextmanager
    def erasing(self) -> Iterator[None]:
        """Hold the lock that lets one process at a time change files of the archive; waits for it."""
        self.check_there()
        with lock(self.folder, "erasing", wait=True):
            yield


def _rewrite_events(table: Any, rewrites: Mapping[int, tuple[Rewrite, bytes | None]]) -> Any:
    rows = table.to_pylist()
    for row in rows:
        if (found := rewrites.get(row["seq"])) is not None:
            one, digest = found
            left = {"id": one.id, "kind": one.kind, "body": one.body, "digest": digest}
            row.update(user=None, model=None, salt=None, **left)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _drop_rewards(table: Any, rewrites: Mapping[int, Any]) -> Any:
    gone = pa.array(list(rewrites), pa.int64())
    return table.filter(pc.invert(pc.is_in(table.column("seq"), value_set=gone)))


def build_table(rows: list[tuple[Any, ...]], schema: Any) -> Any:
    """Return a table of these rows, at least one."""
    columns = [pa.array(column, one.type) for column, one in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.table(columns, schema=schema)


class Writer:
    """Writes the files of one compaction, each with `.new` at its end; `finish` names them as they count."""

    def __init__(self, folder: Path, feature_map: bytes | None, key: bytes) -> None:
        self.folder, self.paths = folder, list[Path]()
        self._schema = REWARD_SCHEMA if feature_map is None else REWARD_SCHEMA.with_metadata({key: feature_map})
        self._rows: list[tuple[Any, ...]] = []
        self._rewards: list[tuple[Any, ...]] = []
        for place in (folder, folder / EVENTS, folder / REWARDS):
            make_folder(place)

    def add(self, row: Row, seal: Seal, reward: tuple[Any, ...] | None) -> None:
        self._rows.append((*row, *seal))
        if reward is not None:
            self._rewards.append(reward)
        if len(self._rows) == PART:
            self.flush()

    def flush(self) -> None:
        """Write what was added as one file of events and one of rewards, to disk."""
        if not self._rows:
            return
        name = f"{self._rows[0][0]:015d}-{self._rows[-1][0]:015d}.parquet"
        for place, rows, schema in ((EVENTS, self._rows, SCHEMA), (REWARDS, self._rewards, self._schema)):
            if rows:
                self.paths.append(self.folder / place / f"{name}{NEW}")
                _write_table(self.paths[-1], build_table(rows, schema))
        self._rows, self._rewards = [], []
        sync_folders(self.folder)

    def discard(self) -> None:
        for path in self.paths:
            path.unlink(missing_ok=True)


def has_leftovers(folder: Path) -> bool:
    """Whether an archive has files without their final names: of an ended process, or of one that is under way."""
    return any(True for suffix in (ERASED, NEW) for _ in _list_files(folder, suffix))


def discard_new(folder: Path) -> None:
    """Remove the files of a compaction that was ended before it was in the log; call it after `settle`."""
    for path in _list_files(folder, NEW):
        path.unlink(missing_ok=True)


def _write_table(path: Path, table: Any) -> None:
    """Write a file of mode 600, and wait until it is on disk."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            pq.write_table(
                table, file, row_group_size=_GROUP, compression="zstd", compression_level=3, write_page_checksum=True
            )
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        words = f"{path} could not be written ({error.strerror or error})"
        raise OutputError(f"{words}; free some space, or give another folder") from None


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path} cannot be read ({error}); restore the archive from a backup") from None


def _check_rows(path: Path, rows: Any) -> None:
    """Raise StoreError if an event lacks what every event has."""
    if not rows.schema.equals(SCHEMA):
        raise StoreError(f"{path} has other columns than lcb has written; restore the archive from a backup")
    for name in ("seq", "id", "kind", "body"):
        if rows.column(name).null_count:
            seq = rows.column("seq")[rows.column(name).is_null().to_pylist().index(True)].as_py()
            raise StoreError(f"event {seq} in {path} has no {name}; restore the archive from a backup")


def _list_files(folder: Path, suffix: str) -> Iterator[Path]:
    for name in (EVENTS, REWARDS):
        yield from sorted((folder / name).glob(f"*{suffix}"))


def _find_target(path: Path) -> Path:
    return path.with_name(f"{path.name.partition('.parquet')[0]}.parquet")


def _of_rewards(events: Path) -> Path:
    return events.parent.parent / REWARDS / events.name


def _read_name(path: Path) -> Part:
    first, _, last = path.name.removesuffix(".parquet").partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) > 0):
        raise StoreError(f"{path} is not a file of an archive; remove it from the folder")
    return Part(int(first), int(last), path)
