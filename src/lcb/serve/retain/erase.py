"""Erasure of a user in log and archive: files of the archive are rewritten like the events of the log.

What stays of a long history is found before the transaction of the erasure, which takes only events that came since.
The new files are on disk before the `erase` event is in the log, and take their places after it: if the process is
ended in between, `Archive.settle` finishes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from lcb.errors import StoreUnavailable
from lcb.serve import events
from lcb.serve.base_bodies import CompactBody, ErasedBase
from lcb.serve.event_ids import event_id
from lcb.serve.log.erasure import Remains
from lcb.serve.retain.archive import Archive, build_missing, read_archived_base
from lcb.serve.retain.base import build_base, digest_base_row
from lcb.serve.retain.settle import settle_leftovers
from lcb.serve.state.world import World
from lcb.serve.state.world_snapshot import read_base
from lcb.storage.store.base import NewRow, Rewrite, Row, Seal, Store
from lcb.storage.store.chain import digest_erased
from lcb.storage.store.retention import BASE, ERASED_BASE


class Compacted(Exception):
    """The log was compacted since the erasure began: begin again."""


class Erasure:
    """The erasure of one user; `begin` and the methods after it may run in any thread."""

    def __init__(
        self,
        world: World,
        user: str,
        folder: Path | None,
        at: float,
        new_id: Callable[[], str],
        by: events.Actor | None,
    ) -> None:
        self.world, self.user, self.folder = world, user, folder
        self.at, self.name, self.by = at, new_id(), by
        self.base: CompactBody | None = None
        self.archived: list[tuple[Row, Seal]] = []
        self._remains = Remains(world)
        self._prepared: list[Path] = []
        self._may_be_stored = False  # the `erase` event
        self._held = ExitStack()

    def begin(self, store: Store) -> None:
        """Find what stays of the user's events; read what the archive has of them, and write its files without them."""
        upto = self.world.seq  # later events may rest on models that are not applied here
        try:
            self.base = read_archived_base(store, self.folder)
            if self.base is not None and store.events_of(self.user, 0, self.base.upto):
                self._rewrite_archive(store, self.base.upto)
            elif self.folder is not None:
                settle_leftovers(store, self.folder, self.base)  # also of an erasure of this user, asked for again
            self._take(store.events_of(self.user, 0, upto))
        except BaseException:
            self.abandon()
            raise

    def _rewrite_archive(self, store: Store, upto: int) -> None:
        archive = self._open(upto)
        self._held.enter_context(archive.erasing())
        archive.settle(store)
        self.archived = archive.sealed_events_of(self.user)
        self._check_there(store)
        self._take([])
        digests = {row.seq: digest_erased(row, seal) for row, seal in self.archived}
        files = {one.seq: (one, digests[one.seq]) for one in self._remains.rewrites}
        self._prepared = archive.prepare_erasure(self.name, files)

    def _take(self, rows: list[Row]) -> None:
        """Find what stays of the archived events and of `rows`, the events of the log."""
        there = {row.seq for row, _ in self.archived}
        whole = [row for row, _ in self.archived] + [row for row in rows if row.seq not in there and row.kind != BASE]
        if not self._remains.continues_in(whole):
            self._remains = Remains(self.world)
        self._remains.take(whole[len(self._remains.taken) :])

    def _check_there(self, store: Store) -> None:
        """Raise StoreUnavailable if the archive does not have what the store says: the two are of different times."""
        assert self.base is not None
        there = {row.seq for row, _ in self.archived}
        if any(row.seq not in there for row in store.events_of(self.user, 0, self.base.upto)):
            raise StoreUnavailable(
                f"this user was erased in the archive {self.folder}, but not in this log, which was restored from an "
                "earlier backup; restore the archive of the same time too, and erase again"
            )

    @property
    def archived_ids(self) -> list[str]:
        """The ids of the user's archived decisions, which may be used again after the erasure."""
        return [row.id for row, _ in self.archived if row.kind == "decision"]

    def rewrite(self, store: Store, rows: list[Row]) -> tuple[list[Rewrite], NewRow]:
        """Return how the user's events of the log are rewritten, and the `erase` event for these and the archived."""
        now = read_base(store)
        if (0 if now is None else now.upto) != (0 if self.base is None else self.base.upto):
            raise Compacted
        self._take(rows)
        rewrites, event = self._remains.rewrites, self._remains.build_event(self.at, self.name, self.by)
        self._may_be_stored = True
        if self.base is None:
            return rewrites, event
        here = {row.seq: row for row in rows}
        return [self._replace_base(store, one, here, rows) for one in rewrites if one.seq in here], event

    def _replace_base(self, store: Store, one: Rewrite, here: dict[int, Row], rows: list[Row]) -> Rewrite:
        """Let nothing stay of a base row, nor of the event that it has not replaced yet; its digest stays.

        A base row that another has not replaced yet is left like an event, and will be removed like one.
        """
        assert self.base is not None
        row, last = here[one.seq], max((seq for seq in here if seq <= self.base.upto), default=0)
        if row.kind != BASE if last in self.base.kept else one.seq != last:
            return one
        digest = None
        if row.kind != BASE:
            found = build_base(self.world, [each for each in rows if each.seq <= self.base.upto])
            assert found is not None
            _, seal = next(store.sealed_events(one.seq - 1, one.seq))
            digest = digest_base_row(found.row, seal.salt)
        return Rewrite(one.seq, event_id("erased", one.seq), ERASED_BASE, events.encode(ErasedBase()), digest)

    def finish(self) -> None:
        """After the `erase` event is stored: put the files in their places."""
        prepared, self._prepared = self._prepared, []  # they stay, whatever happens: `settle` puts them in their places
        try:
            if prepared and self.base is not None:
                self._open(self.base.upto).finish(prepared)
        except OSError as error:
            words = f"the user is erased from the log, but files of {self.folder} could not be replaced ({error})"
            raise StoreUnavailable(
                f"{words}; the next start or erasure does that, when the folder can be written"
            ) from None
        finally:
            self._held.close()

    def abandon(self) -> None:
        """Change nothing; if the `erase` event may be stored, the files stay, and `Archive.settle` looks for it."""
        for path in () if self._may_be_stored else self._prepared:
            path.unlink(missing_ok=True)
        self._prepared = []
        self._held.close()

    def _open(self, upto: int) -> Archive:
        if self.folder is None:
            raise build_missing(self.world.store.url, upto)
        return Archive(self.folder, upto)
