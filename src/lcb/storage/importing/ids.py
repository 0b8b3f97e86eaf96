"""Gives users and items codes 0, 1, 2, ... in the order of first appearance; memory grows with their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.errors import InputError
from lcb.storage.importing.bad_rows import Check, show_cell
from lcb.storage.importing.cells import to_whole_numbers
from lcb.storage.tables.arrow import is_string, plain
from lcb.storage.tables.codes import Codes, IntegerCodes, StringCodes


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
        self._coder: IntegerCodes | StringCodes | None = None
        self._counts = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._coder) if self._coder else 0

    def names(self) -> Any:
        """Return the id of each code: int64 or strings."""
        return self._coder.names() if self._coder else pa.array([], pa.int64())

    def codes(self, column: Any, check: Check) -> Codes:
        """Return codes (n,); those of bad rows have no meaning."""
        column = plain(column)
        if self.whole or column.type in (pa.float64(), pa.float32(), pa.uint64()):
            column = to_whole_numbers(column, self.name, check)
        kind = column.type
        if pa.types.is_integer(kind):
            self._coder = self._coder or IntegerCodes()
        elif is_string(kind):
            self._coder = self._coder or StringCodes()
        else:
            words = f"column {self.name} of {check.path} holds {kind}"
            raise InputError(f"{words}; integers or strings are wanted, convert it")
        if isinstance(self._coder, IntegerCodes) != bool(pa.types.is_integer(kind)):
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
        self._coder = IntegerCodes() if pa.types.is_integer(names.type) else StringCodes()
        self._coder.codes(names)


def _find_missing(column: Any) -> NDArray[np.bool_]:
    missing = np.array(column.is_null().to_numpy(zero_copy_only=False), bool)
    if is_string(column.type):
        missing |= np.array(
            pc.fill_null(pc.equal(pc.binary_length(column), 0), False).to_numpy(zero_copy_only=False), bool
        )
    return missing
