"""An event that is ready to be appended to the log."""

from __future__ import annotations

from typing import Any

import msgspec

from lcb.storage.store.base import NewRow


class Entry(msgspec.Struct):
    """A new event with its decoded body, and the answer to send once it is stored.

    `key` names what the event is about: another event of the same key waits until this one is stored.
    """

    row: NewRow
    body: Any
    answer: bytes
    key: str
    newcomer: bool = False  # the first decision of a new user, which fixes recommender and models
    fixes_n_features: bool = False  # void if anything else is written before it
