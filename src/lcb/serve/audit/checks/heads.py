"""Checks heads of a compacted log from before its base: only the archive has the events that they are of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lcb.errors import StoreError
from lcb.progress import Progress
from lcb.serve.audit.checks.order import check_order
from lcb.serve.audit.report import Report
from lcb.serve.base_bodies import CompactBody
from lcb.storage.store.base import Head, Store


def split_heads(heads: Sequence[Head], after: int) -> tuple[list[Head], list[Head]]:
    """Return the heads of events from `after` on, and those of earlier ones.

    >>> split_heads([Head(3, b"x"), Head(5, b"y")], 5)
    ([Head(seq=5, link=b'y')], [Head(seq=3, link=b'x')])
    """
    return [head for head in heads if head.seq >= after], [head for head in heads if head.seq < after]


def check_old_heads(
    store: Store, base: CompactBody, heads: Sequence[Head], folder: Path | None, report: Report, progress: Progress
) -> None:
    """Check the archived chain from its first event to the link that the base has, and these heads in it.

    Heads that cannot be checked are noted in the report with the reason.
    """
    from lcb.serve.retain.archive import Archive  # with pyarrow, which most verifications do not need
    from lcb.serve.retain.whole_log import WholeLog

    found = Report(base.upto)
    try:
        if folder is None:
            raise StoreError("no folder of the archive is given")
        if not folder.is_dir():
            raise StoreError(f"there is no archive {folder}")
        check_order(WholeLog(store, Archive(folder, base.upto)), base.upto, heads, found, progress)
    except StoreError as error:
        words = f"the log begins after event {base.upto}, and {error}; give --archive FOLDER"
        report.unchecked_heads += [f"{head}: {words}" for head in heads]
        return
    for one in found.differences:
        report.add(one.seq, f"in the archive {folder}: {one.what}", one.stored, one.recomputed)
    report.n_differences += found.n_differences - len(found.differences)
    if found.head != (wanted := str(Head(base.upto, base.link))):
        report.add(base.upto, f"the last link of the archive {folder}", found.head, wanted)
