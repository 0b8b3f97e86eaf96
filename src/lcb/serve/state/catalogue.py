"""The catalogue: items that requests can name by id, with their features in one matrix."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lcb.arrays import Floats
from lcb.messages import Item
from lcb.serve.events import ItemsBody, floats


class Catalogue:
    """Items in the order they were added; a changed item keeps its place."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self._x: dict[str, Floats] = {}
        self._matrix: Floats | None = None
        self._place: dict[str, int] = {}
        self._ids: list[str] = []

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
            features = None if categories else tuple(floats(x).tolist())
            self.items[id] = Item(id, features, tuple(categories) if categories else None, title, summary)
            self._x[id] = floats(x)
        self._matrix = None

    def x(self, ids: Iterable[str]) -> Floats:
        """Return the features of these items, (K, d); raises KeyError with the first unknown id."""
        matrix, place = self.matrix(), self._place
        return matrix[[place[id] for id in ids]]

    def matrix(self) -> Floats:
        """Return the features of all items, (n, d)."""
        if self._matrix is None:
            self._ids = list(self._x)
            self._place = {id: i for i, id in enumerate(self._ids)}
            self._matrix = np.array(list(self._x.values())) if self._x else np.empty((0, 0))
        return self._matrix
