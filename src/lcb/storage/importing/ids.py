"""Users and items as codes 0, 1, 2, ... in the order they are first met; memory grows with their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.errors import InputError
from lcb.storage.arrow import is_string, value_type
from lcb.storage.importing.cells import convertible, whole_numbers
from lcb.storage.importing.problems import Check, shown

Codes = NDArray[np.int32]


class Ids:
    """Codes of one column of ids: integers or strings, the same all along.

    >>> from lcb.storage.importing.problems import Problems
    >>> ids = Ids("user")
    >>> check = Check("log.csv", np.arange(1, 4), Problems())
    >>> ids.codes(pa.array(["ann", "bob", "ann"]), check), ids.names().to_pylist()
    (array([0, 1, 0], dtype=int32), ['ann', 'bob'])
    """

    def __init__(self, name: str, *, whole: bool = False) -> None:
        self.name = name
        self.whole = whole
        self._coder: _Integers | _Strings | None = None

    @property
    def group(self) -> int:
        """How many rows should come at a time, so that coding them costs little beside."""
        return len(self._coder) if isinstance(self._coder, _Strings) else 0

    def __len__(self) -> int:
        return len(self._coder) if self._coder else 0

    def names(self) -> Any:
        """The id of each code: int64 or strings."""
        return self._coder.names() if self._coder else pa.array([], pa.int64())

    def codes(self, column: Any, check: Check) -> Codes:
        """Codes (n,); those of refused rows mean nothing."""
        column = _joined(column)
        if self.whole or value_type(column.type) in (pa.float64(), pa.float32(), pa.uint64()):
            column = whole_numbers(column, self.name, check)
        kind = value_type(column.type)
        if pa.types.is_integer(kind):
            self._coder = self._coder or _Integers()
        elif is_string(kind):
            self._coder = self._coder or _Strings()
        else:
            raise InputError(
                f"column {self.name} of {check.path} holds {kind}; integers or strings are wanted, convert it"
            )
        if isinstance(self._coder, _Integers) != bool(pa.types.is_integer(kind)):
            raise InputError(f"column {self.name} of {check.path} holds {kind}, the files before do not; convert one")
        missing = _missing(column)
        if missing.any():
            check.refuse(missing, f"{self.name} is missing", lambda i: f"{self.name} is missing")
        codes = self._coder.codes(column)
        if (codes < 0).any():
            said = f"{self.name} is not UTF-8 text"
            check.refuse(codes < 0, said, lambda i: f"{said}: {shown(column, i)}; save the file as UTF-8")
        return codes

    def enter(self, names: Any) -> None:
        """Give these, all different, the first codes."""
        self._coder = _Integers() if pa.types.is_integer(names.type) else _Strings()
        self._coder.codes(names)


class _Integers:
    """An open table of slots that doubles when half full: 16 to 32 bytes an id."""

    def __init__(self) -> None:
        self.n = 0
        self.slots = np.full(1 << 12, -1, np.int32)
        self.ids = np.empty(1 << 11, np.int64)

    def __len__(self) -> int:
        return self.n

    def names(self) -> Any:
        return pa.array(self.ids[: self.n])

    def codes(self, column: Any) -> Codes:
        from lcb.storage.importing._codes_numba import enter, settle

        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        values = pc.fill_null(column.cast(pa.int64()), 0) if column.null_count else column.cast(pa.int64())
        numbers = values.to_numpy(zero_copy_only=False)
        out = np.empty(len(numbers), np.int32)
        done = 0
        while True:
            self.n, done = enter(self.slots, self.ids, self.n, numbers, out, done)
            if done == len(numbers):
                return out
            self.slots = np.full(2 * len(self.slots), -1, np.int32)
            self.ids = np.concatenate([self.ids, np.empty_like(self.ids)])
            settle(self.slots, self.ids, self.n)


class _Strings:
    """A list of strings; a hash table of all is made for each chunk, so chunks should be as long as the list."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.n = 0

    def __len__(self) -> int:
        return self.n

    def names(self) -> Any:
        self.parts = [pa.concat_arrays(self.parts)] if self.parts else [pa.array([], pa.string())]
        return self.parts[0]

    def codes(self, column: Any) -> Codes:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        texts, failing = convertible(coded.dictionary, _checked_text)
        known = pc.index_in(texts, value_set=self.names())
        new = np.flatnonzero(known.is_null().to_numpy(zero_copy_only=False))
        code_of = np.array(pc.fill_null(known, -1).to_numpy(zero_copy_only=False), np.int32)
        new = np.setdiff1d(new, failing, assume_unique=True)
        self.parts.append(texts.take(pa.array(new)).cast(pa.string()))
        code_of[new] = np.arange(self.n, self.n + len(new))
        code_of[failing] = -1
        self.n += len(new)
        indices = pc.fill_null(coded.indices, 0) if coded.null_count else coded.indices
        return code_of[indices.to_numpy(zero_copy_only=False)] if len(code_of) else np.zeros(len(column), np.int32)


def _checked_text(part: Any) -> Any:
    return part.cast(pa.large_binary()).cast(pa.large_string()).cast(pa.string())


def _joined(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _missing(column: Any) -> NDArray[np.bool_]:
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
