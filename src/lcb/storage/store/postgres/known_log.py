"""Notices that the log in the database is no longer the one that this process has read and written.

That is so after a failover to a standby that was behind, or when an older copy was restored, while a service runs: its
state in memory has events that the log does not have.
"""

from __future__ import annotations

from lcb.errors import StoreError
from lcb.storage.store.base import Head

LINK_AT = "select (select link from event where seq = %s)"
HEAD_AND_LINK = "select seq, link, (select link from event where seq = %s) from head"
COMPACTED_AFTER = "select 1 from event where \"user\" is null and kind = 'compact' and seq > %s limit 1"


class KnownLog:
    """The last event that this process knows the log to have."""

    def __init__(self, url: str) -> None:
        self.url, self.head = url, Head(0, None)

    def differs(self, link: bytes | None) -> bool:
        """Whether the log has not this `link` at the known event; a compaction may have removed or replaced it."""
        return self.head.link is not None and link != self.head.link

    def build_error(self, seq: int) -> StoreError:
        """Return the error of a log in which the event `seq`, which this process has applied, is missing or another."""
        return StoreError(
            f"the log in {self.url} is not the one that this service has applied: event {seq} is missing there, or is "
            "another one; the server lost commits, or is a copy that was behind: restart every replica to go on with "
            "it",
            replaced=True,
        )
