"""The catalogue: items that requests can name by id, with their features in one matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lcb.arrays import Floats, Index
from lcb.messages import Item
from lcb.serve.events import ItemsBody, floats


class Catalogue:
    """Items in the order they were added; a changed item keeps its place."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}  # without their features
        self._x: dict[str, Floats] = {}
        self._matrix: Floats | None = None
        self._place: dict[str, int] = {}
        self._ids: list[str] = []
        self.n_changes = 0

    def __len__(self) -> int:
        return len(self.items)

    @property
    def n_features(self) -> int | None:
        return len(next(iter(self._x.values()))) if self._x else None

    @property
    def ids(self) -> list[str]:
        self.matrix()
        return self._ids

    def apply(self, body: ItemsBody) -> None:
        if body.replace:
            self.items, self._x = {}, {}
        for name in body.remove:
            self.items.pop(name, None)
            self._x.pop(name, None)
        for id, x, categories, title, summary in body.items:
            self.items[id] = Item(id, None, tuple(categories) if categories else None, title, summary)
            self._x[id] = floats(x)
        self._matrix = None
        self.n_changes += 1

    def list_items(self) -> Iterator[Item]:
        """Return all items as they are now, each with the features or the categories it was sent with.

        The lists of features are built one by one: all at once they would take 50 ms.
        """
        kept = list(zip(self.items.values(), self._x.values(), strict=True))
        return (
            item if item.categories else Item(item.id, tuple(x.tolist()), None, item.title, item.summary)
            for item, x in kept
        )

    def find(self, ids: Sequence[str]) -> Index:
        """Return the rows of these items in `matrix`, (K,); raises KeyError with the first unknown id."""
        self.matrix()
        return np.fromiter(map(self._place.__getitem__, ids), np.intp, len(ids))

    def x(self, ids: Sequence[str]) -> Floats:
        """Return the features of these items, (K, d); raises KeyError with the first unknown id."""
        return self.matrix()[self.find(ids)]

    def place(self, id: str) -> int | None:
        """Return the row of an item in `matrix`; None if it is not in the catalogue."""
        self.matrix()
        return self._place.get(id)

    def matrix(self) -> Floats:
        """Return the features of all items, (n, d)."""
        if self._matrix is None:
            self._ids = list(self._x)
            self._place = {id: i for i, id in enumerate(self._ids)}
            self._matrix = np.array(list(self._x.values())) if self._x else np.empty((0, 0))
        return self._matrix
