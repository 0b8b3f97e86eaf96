"""Bodies of what compaction leaves of old events: `base` rows of users, and the event `compact`.

base      in place of a user's last archived event, with its seq: the user as of that event
compact   the log was compacted up to `upto`: service-wide state as of that event, and a digest of all rows up to it
"""

from __future__ import annotations

from msgspec import Struct


class BaseBody(Struct, array_like=True):
    """A user as of the event whose place this row has."""

    recommender: str
    user: bytes  # lcb.serve.state.users.User.pack
    seen: dict[str, int]  # what the user was shown, lcb.serve.state.seen_items
    n_events: int  # archived events of the user


class CompactBody(Struct, array_like=True):
    """The events up to `upto` are archived; what later events need of them is here and in the rows that stay."""

    at: float
    keep: float  # seconds: what was older then
    upto: int
    link: bytes  # of the event `upto`
    before: int  # `upto` of the compaction before this one
    world: bytes  # service-wide state as of `upto`, lcb.serve.state.world_snapshot
    base: bytes  # digest of the rows up to `upto` that stay, lcb.serve.retain.base
    kept: list[int]  # seqs of events up to `upto` that stay because a later reward changes one of them
    n_users: int  # users in base rows
    address: str  # where the command was given
    ids: bytes = b""  # digest of the ids of archived decisions, lcb.serve.retain.ids; empty: not computed


class ErasedBase(Struct, array_like=True):
    """The base row of an erased user: nothing is left of it."""


BASE_KINDS: dict[str, type[Struct]] = {"base": BaseBody, "erased base": ErasedBase, "compact": CompactBody}
