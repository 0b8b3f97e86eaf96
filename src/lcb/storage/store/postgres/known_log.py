"""Notices that the log in the database is no longer the one that this process has read and written.

That is so after a failover to a standby that was behind, when an older copy was restored, or when somebody has removed
the newest events, while a service runs: its state in memory has events that the log does not have.
"""

from __future__ import annotations

from lcb.errors import StoreError
from lcb.storage.store.base import Head

# Whether the log has the known event: asked by the statement whose answer rests on it, so that both are of one moment.
# A compaction may have removed or replaced that event.
IS_KNOWN = (
    "(%b::bytea is null or exists (select from event where event.seq = %s and event.link = %b) "
    "or exists (select from event where event.\"user\" is null and event.kind = 'compact' and event.seq > %s))"
)
HAS_HEAD = (  # of table head: whether the event that it names is there; an event of the first versions has no link
    "(head.link is null or exists (select from event where event.seq = head.seq and event.link = head.link))"
)
HEAD = f"select seq, link, {HAS_HEAD}, {IS_KNOWN} from head"


class KnownLog:
    """The last event that this process knows the log to have: `head`, which is committed."""

    def __init__(self, url: str) -> None:
        self.url, self.head = url, Head(0, None)

    def build_error(self, seq: int) -> StoreError:
        """Return the error of a log in which the event `seq`, which this process has applied, is missing or another."""
        return StoreError(
            f"the log in {self.url} is not the one that this service has applied: event {seq} is missing there, or is "
            "another one; the server lost commits, is a copy that was behind, or somebody removed events: restart "
            "every replica to go on with it, or restore a backup",
            replaced=True,
        )


def list_values(known: Head) -> tuple[object, ...]:
    """Return the values of IS_KNOWN."""
    return known.link, known.seq, known.link, known.seq
