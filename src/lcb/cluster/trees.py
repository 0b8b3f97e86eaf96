"""Sums over parts, added as a tree that belongs to the data.

Parts are the leaves of a binary tree, and neighbours are added level by level.  A shard adds what lies within its parts
and sends the few sums that are left; whoever asked adds the rest in the same tree.  So the number of shards changes no
bit, and a message has at most 2 log2(256) sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

N_PARTS = 256
S = TypeVar("S")
Place = tuple[int, int]  # level, from 0 for parts on, and position among those of the level


def add_within(sums: Mapping[Place, S], begin: int, end: int) -> dict[Place, S]:
    """Add neighbours whose parts are all in [begin, end); return what is left.  A place without users is left out.

    >>> add_within({(0, 0): 1, (0, 1): 2, (0, 2): 4}, 0, 3)
    {(1, 0): 3, (0, 2): 4}
    """
    left: dict[Place, S] = dict(sums)
    size = 2
    for level in range(N_PARTS.bit_length() - 1):
        for above in sorted({place // 2 for own, place in left if own == level}):
            if begin <= above * size and (above + 1) * size <= end:
                both = [left.pop((level, child)) for child in (2 * above, 2 * above + 1) if (level, child) in left]
                left[level + 1, above] = both[0] + both[1] if len(both) == 2 else both[0]  # type: ignore[operator]
        size *= 2
    return dict(sorted(left.items(), key=lambda one: one[0][1] << one[0][0]))


def add_all(sums: Mapping[Place, S]) -> S:
    """Add the sums of all shards.

    >>> add_all({(1, 0): 3, (0, 2): 4})
    7
    """
    (total,) = add_within(sums, 0, N_PARTS).values()
    return total


@dataclass(frozen=True, eq=False)
class Stack:
    """Sums of several parts, their arrays stacked: many small arrays take longer to send than to compute.

    >>> list(Stack.of([1, 2]))
    [1, 2]
    """

    kind: type | None  # a dataclass of arrays and numbers; None: numbers
    columns: tuple[NDArray[Any], ...]  # its fields, (parts, ...) each

    @classmethod
    def of(cls, parts: Sequence[Any]) -> Stack:
        if not parts or not is_dataclass(parts[0]):
            return cls(None, (np.array(parts),))
        names = [field.name for field in fields(parts[0])]
        return cls(type(parts[0]), tuple(np.stack([getattr(part, name) for part in parts]) for name in names))

    def __iter__(self) -> Iterator[Any]:
        for row in zip(*self.columns, strict=True):
            values = [value if np.ndim(value) else value.item() for value in row]
            yield values[0] if self.kind is None else self.kind(*values)


@dataclass(frozen=True, eq=False)
class Sums:
    """What a shard answers."""

    places: tuple[Place, ...]
    stack: Stack

    @classmethod
    def of(cls, parts: Mapping[int, Any], begin: int, end: int) -> Sums:
        """Add the sums of its parts within [begin, end)."""
        left = add_within({(0, part): value for part, value in parts.items()}, begin, end)
        return cls(tuple(left), Stack.of(list(left.values())))

    def items(self) -> Iterator[tuple[Place, Any]]:
        return zip(self.places, self.stack, strict=True)
