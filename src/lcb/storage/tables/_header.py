"""Which columns of a table hold what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lcb.errors import InputError
from lcb.storage.tables.diagnose import one_line


@dataclass(frozen=True)
class Header:
    """What a table says of its columns."""

    path: str
    names: Sequence[str]
    numeric: Sequence[str]  # those that look like numbers, to be proposed
    lists: Sequence[str] = ()

    def choose(self, columns: Sequence[str], user_columns: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns of the arm's features and of the user's: those named, or else the lists."""
        self._check("user", "reward")
        arm = tuple(columns) or (("x",) if "x" in self.lists else ())
        user = tuple(user_columns) or (("user_x",) if "user_x" in self.lists else ())
        if not arm:
            raise InputError(self._propose())
        if not user and "user_x" in self.names:
            raise InputError(f"{self.path} column user_x holds no lists; rename it, or use --user-columns user_x")
        self._check(*arm, *user)
        self._check_features("columns", columns)
        self._check_features("user_columns", user_columns)
        return arm, user

    def _check(self, *wanted: str) -> None:
        for name in wanted:
            if name not in self.names:
                there = ", ".join(map(str, self.names[:20])) + (", ..." if len(self.names) > 20 else "")
                raise InputError(
                    one_line(f"{self.path} has no column {name}; it has {there}: rename one, or name another")
                )
            if list(self.names).count(name) > 1:
                raise InputError(f"{self.path} has more than one column {name}; rename all but one")

    def _check_features(self, option: str, columns: Sequence[str]) -> None:
        for name in columns:
            if name in ("user", "reward"):
                raise InputError(f"{option} has {name}, which is no feature of {self.path}; leave it out")
            if name in self.lists:
                raise InputError(f"{self.path} column {name} holds lists; leave it out of {option}, x is read unasked")
            if list(columns).count(name) > 1:
                raise InputError(f"{option} has {name} more than once in {self.path}; name each column once")

    def _propose(self) -> str:
        names = [name for name in self.numeric if name not in ("user", "reward")][:20]
        if not names:
            return one_line(f"{self.path} has no list column x and no numeric column to name; add features to it")
        example = f"name the feature columns, for example --columns {','.join(names)}"
        return one_line(f"{self.path} has no list column x; {example}")
