"""Codes 0, 1, 2, ... of ids in the order of first appearance, by compiled hash tables; and a hash to draw users by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.storage.tables._codes_numba import enter, find_differing, hash_texts, scramble, settle
from lcb.storage.tables.arrow import convert_cells, plain

Codes = NDArray[np.int32]
Hashes = NDArray[np.uint64]


class IntegerCodes:
    """Codes of integers; 16 to 32 bytes per id."""

    def __init__(self) -> None:
        self.n = 0
        self.slots = np.full(1 << 12, -1, np.int32)
        self.ids = np.empty(1 << 11, np.int64)

    def __len__(self) -> int:
        return self.n

    def names(self) -> Any:
        return pa.array(self.ids[: self.n])

    def codes(self, column: Any) -> Codes:
        values = plain(column).cast(pa.int64())
        numbers = (pc.fill_null(values, 0) if values.null_count else values).to_numpy(zero_copy_only=False)
        out = np.empty(len(numbers), np.int32)
        done = 0
        while done < len(numbers):
            self.n, done = enter(self.slots, self.ids, self.n, numbers, out, done)
            if done < len(numbers):
                self.slots = np.full(2 * len(self.slots), -1, np.int32)
                self.ids = _double(self.ids)
                settle(self.slots, self.ids, self.n)
        return out


class StringCodes:
    """Codes of strings; 24 to 48 bytes per string, and one to two times its own length.

    Strings are found by a hash of 64 bits and then compared; the few with equal hashes are kept in `clashes`.
    """

    def __init__(self) -> None:
        self.n = 0
        self.slots = np.full(1 << 12, -1, np.int32)
        self.hashes = np.empty(1 << 11, np.uint64)
        self.starts = np.zeros((1 << 11) + 1, np.int64)
        self.letters = np.empty(1 << 15, np.uint8)
        self.clashes: dict[bytes, int] = {}
        self.not_text: set[int] = set()

    def __len__(self) -> int:
        return self.n

    def names(self, first: int = 0) -> Any:
        """Return the texts from the code `first` on."""
        starts = self.starts[first : self.n + 1]
        buffers = [None, pa.py_buffer(starts - starts[0]), pa.py_buffer(self.letters[starts[0] : starts[-1]])]
        made = pa.Array.from_buffers(pa.large_string(), self.n - first, buffers)
        return made.cast(pa.string()) if starts[-1] - starts[0] < 1 << 31 else made

    def codes(self, column: Any) -> Codes:
        before = self.n
        codes = self._enter(*_split_texts(plain(column)))
        if self.n > before:
            new = self.names(before).cast(pa.large_binary())
            failing = convert_cells(new, lambda part: part.cast(pa.large_string()))[1]
            self.not_text.update((failing + before).tolist())
        if self.not_text:
            codes[np.isin(codes, list(self.not_text))] = -1
        return codes

    def _enter(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> Codes:
        """Return the codes of the texts data[offsets[i]:offsets[i + 1]]."""
        values = hash_texts(offsets, data)
        codes = np.empty(len(values), np.int32)
        done, before = 0, self.n
        while done < len(values):
            self.n, done = enter(self.slots, self.hashes, self.n, values, codes, done)
            if done < len(values):
                self._grow()
        if self.n > before:
            self._keep(codes, before, offsets, data)
        for i in np.flatnonzero(find_differing(self.starts, self.letters, offsets, data, codes)).tolist():
            codes[i] = self._resolve_clash(data[offsets[i] : offsets[i + 1]], int(codes[i]), values[i])
        return codes

    def _grow(self) -> None:
        self.slots = np.full(2 * len(self.slots), -1, np.int32)
        self.hashes, self.starts = _double(self.hashes), _double(self.starts)
        settle(self.slots, self.hashes, self.n)

    def _keep(self, codes: Codes, before: int, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
        """Store the bytes of each new text, from the first row that has it."""
        rows = np.flatnonzero(codes >= before)
        _, first = np.unique(codes[rows], return_index=True)
        lengths = (offsets[1:] - offsets[:-1])[rows[first]]
        ends = self.starts[before] + np.cumsum(lengths)
        self.starts[before + 1 : self.n + 1] = ends
        while ends[-1] > len(self.letters):
            self.letters = _double(self.letters)
        places = np.repeat(offsets[rows[first]] - (ends - lengths), lengths) + np.arange(self.starts[before], ends[-1])
        self.letters[self.starts[before] : ends[-1]] = data[places]

    def _resolve_clash(self, text: NDArray[np.uint8], code: int, value: np.uint64) -> int:
        """Return the code of a text that has the same hash as the text of `code`."""
        other = self.letters[self.starts[code] : self.starts[code + 1]].tobytes()
        self.clashes.setdefault(other, code)
        if text.tobytes() not in self.clashes:
            self.clashes[text.tobytes()] = self.n
            if 2 * (self.n + 1) > len(self.slots):
                self._grow()
            self.hashes[self.n] = value
            self.starts[self.n + 1] = self.starts[self.n] + len(text)
            while self.starts[self.n + 1] > len(self.letters):
                self.letters = _double(self.letters)
            self.letters[self.starts[self.n] : self.starts[self.n + 1]] = text
            self.n += 1
        return self.clashes[text.tobytes()]


def _double(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([values, np.empty_like(values)])


def hash_ids(column: Any) -> Hashes:
    """Return a hash (n,) of integers or strings: the same in every file, process and machine, spread evenly.

    >>> hash_ids(pa.array(["ann", "bob"])), hash_ids(pa.array([7]))
    (array([..., ...], dtype=uint64), array([...], dtype=uint64))
    """
    column = plain(column)
    if pa.types.is_integer(column.type):
        return scramble(column.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64))
    return scramble(hash_texts(*_split_texts(column)))


def _split_texts(column: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return offsets and bytes: text i is data[offsets[i]:offsets[i + 1]]."""
    column = column.cast(pa.large_string())
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    return offsets, np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
