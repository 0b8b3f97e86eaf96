"""Gives users and items codes 0, 1, 2, ... in the order of first appearance; memory grows with their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.errors import InputError
from lcb.storage.importing._codes_numba import enter, find_differing, hash_texts, settle
from lcb.storage.importing.bad_rows import Check, show_cell
from lcb.storage.importing.cells import convert_cells, to_whole_numbers
from lcb.storage.tables.arrow import is_string, plain, value_type

Codes = NDArray[np.int32]


class Ids:
    """Codes for one column of ids, which are all integers or all strings.

    >>> from lcb.storage.importing.bad_rows import Problems
    >>> ids = Ids("user")
    >>> check = Check("log.csv", np.arange(1, 4), Problems())
    >>> ids.codes(pa.array(["ann", "bob", "ann"]), check), ids.names().to_pylist()
    (array([0, 1, 0], dtype=int32), ['ann', 'bob'])
    """

    def __init__(self, name: str, *, whole: bool = False) -> None:
        self.name = name
        self.whole = whole
        self._coder: _Integers | _Strings | None = None
        self._counts = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._coder) if self._coder else 0

    def names(self) -> Any:
        """Return the id of each code: int64 or strings."""
        return self._coder.names() if self._coder else pa.array([], pa.int64())

    def codes(self, column: Any, check: Check) -> Codes:
        """Return codes (n,); those of bad rows have no meaning."""
        column = _join_chunks(column)
        if self.whole or value_type(column.type) in (pa.float64(), pa.float32(), pa.uint64()):
            column = to_whole_numbers(column, self.name, check)
        kind = value_type(column.type)
        if pa.types.is_integer(kind):
            self._coder = self._coder or _Integers()
        elif is_string(kind):
            self._coder = self._coder or _Strings()
        else:
            words = f"column {self.name} of {check.path} holds {kind}"
            raise InputError(f"{words}; integers or strings are wanted, convert it")
        if isinstance(self._coder, _Integers) != bool(pa.types.is_integer(kind)):
            raise InputError(f"column {self.name} of {check.path} holds {kind}, the files before do not; convert one")
        missing = _find_missing(column)
        if missing.any():
            check.refuse(missing, f"{self.name} is missing", lambda i: f"{self.name} is missing")
        codes = self._coder.codes(column)
        if (codes < 0).any():
            said = f"{self.name} is not UTF-8 text"
            check.refuse(codes < 0, said, lambda i: f"{said}: {show_cell(column, i)}; save the file as UTF-8")
        return codes

    def count(self, codes: Codes) -> None:
        """Count these codes as good rows."""
        if len(self) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(2 * len(self) - len(self._counts), np.int64)])
        np.add.at(self._counts, codes, 1)

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of good rows of each code."""
        return self._counts[: len(self)]

    def enter(self, names: Any) -> None:
        """Give these names, all different, the first codes."""
        self._coder = _Integers() if pa.types.is_integer(names.type) else _Strings()
        self._coder.codes(names)


class _Integers:
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


class _Strings:
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
        if pa.types.is_dictionary(column.type):
            codes = self.codes(column.dictionary)
            indices = pc.fill_null(column.indices, 0) if column.null_count else column.indices
            return codes[indices.to_numpy(zero_copy_only=False)] if len(codes) else np.zeros(len(column), np.int32)
        before = self.n
        column = column.cast(pa.large_string())
        _, offset_buffer, data_buffer = column.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
        codes = self._enter(offsets, data)
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


def _join_chunks(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _find_missing(column: Any) -> NDArray[np.bool_]:
    missing = np.array(column.is_null().to_numpy(zero_copy_only=False), bool)
    if pa.types.is_dictionary(column.type):
        if is_string(column.type.value_type):
            empty = np.array(pc.equal(pc.binary_length(column.dictionary), 0).to_numpy(zero_copy_only=False), bool)
            if empty.any():
                missing |= empty[pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False)]
    elif is_string(column.type):
        missing |= np.array(
            pc.fill_null(pc.equal(pc.binary_length(column), 0), False).to_numpy(zero_copy_only=False), bool
        )
    return missing
