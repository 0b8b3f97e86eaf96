"""An event that is ready to be appended to the log."""

from __future__ import annotations

from typing import Any

import msgspec

from lcb.storage.store.base import NewRow


class Entry(msgspec.Struct, gc=False):
    """A new event with its decoded body, and the answer to send once it is stored.

    A request whose event would have the same `key` waits until this event is stored.
    """

    row: NewRow
    body: Any
    answer: bytes
    key: str
    newcomer: bool = False  # the first decision of a new user, which pins recommender and model version
    fixes_n_features: bool = False  # the first event with features; void if any event is written before it
    made_from: int | None = None  # seq of the state it was built from; None: the state when it is appended
