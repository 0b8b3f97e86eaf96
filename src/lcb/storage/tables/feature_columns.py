"""Which columns of an event table hold the features of arms and of users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lcb.errors import InputError
from lcb.storage.tables.arrow import is_list, is_number, is_string, value_type
from lcb.storage.tables.row_errors import to_one_line
from lcb.storage.tables.table import Table

_OF_LOGS = ("item", "rating", "category", "categories", "time", "order", "propensity")  # what `lcb import` finds itself


def choose_features(
    table: Table, columns: Sequence[str], user_columns: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of the arm's and the user's features: those named, or else the lists x and user_x."""
    if not columns and "x" not in table.lists:
        _refuse_raw_log(table)
    table.require(("user", "reward"))
    arm = tuple(columns) or (("x",) if "x" in table.lists else ())
    user = tuple(user_columns) or (("user_x",) if "user_x" in table.lists else ())
    if not arm:
        raise InputError(_propose_columns(table))
    if not user and "user_x" in table.names:
        raise InputError(f"{table.path} column user_x holds no lists; rename it, or use --user-columns user_x")
    table.require(arm + user)
    _check_named(table, "columns", columns)
    _check_named(table, "user_columns", user_columns)
    if table.types:
        _check_types(table, arm + user)
    return arm, user


def check_id_type(kind: Any, path: str) -> None:
    """Refuse users that are neither integers nor strings."""
    if not (pa.types.is_integer(kind) or is_string(kind)):
        hint = " (one missing id turns integers into floats)" if pa.types.is_floating(kind) else ""
        raise InputError(f"{path} column user holds {kind}{hint}; integers or strings are wanted, convert it")


def _check_named(table: Table, option: str, columns: Sequence[str]) -> None:
    for name in columns:
        if name in ("user", "reward"):
            raise InputError(f"{option} has {name}, which is not a feature of {table.path}; leave it out")
        if name in table.lists:
            raise InputError(f"{table.path} column {name} holds lists; leave it out of {option}, x is found by itself")
        if list(columns).count(name) > 1:
            raise InputError(f"{option} has {name} more than once in {table.path}; name each column once")


def _refuse_raw_log(table: Table) -> None:
    """Raise if the table is a log of items rather than of features: it has no user or reward, or it has items."""
    wanted = [name for name in ("user", "reward") if name not in table.names]
    items = [name for name in table.names if name in _OF_LOGS]
    if wanted or items:
        seen = f"no column {wanted[0]}" if wanted else f"a column {items[0]} and no list column x"
        features = ",".join(_list_numeric(table))
        named = f" (a table of features instead names them: --columns {features})" if features and not wanted else ""
        columns = " --user COLUMN --item COLUMN --reward COLUMN" if wanted else ""
        words = f"import it first: lcb import {table.path}{columns} --out log, then lcb learn log --out models"
        raise InputError(to_one_line(f"{table.path} has {seen}, as a log of items has; {words}{named}"))


def _list_numeric(table: Table) -> list[str]:
    return [name for name in table.numeric if name not in ("user", "reward", *_OF_LOGS)][:20]


def _propose_columns(table: Table) -> str:
    names = _list_numeric(table)
    if not names:
        return to_one_line(f"{table.path} has no list column x and no numeric column to name; add features to it")
    example = f"name the feature columns, for example --columns {','.join(names)}"
    return to_one_line(f"{table.path} has no list column x; {example}")


def _check_types(table: Table, features: Sequence[str]) -> None:
    path, types = table.path, table.types
    check_id_type(types["user"], path)
    for name in ("reward", *features):
        kind = types[name]
        if not is_number(value_type(kind.value_type) if is_list(kind) and name != "reward" else kind):
            raise InputError(f"{path} column {name} holds {kind}; numbers are wanted, convert it")
