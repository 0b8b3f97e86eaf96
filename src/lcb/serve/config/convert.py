"""Converts the raw value of a setting, from a TOML file, a variable or a flag, into its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from lcb.errors import InputError
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.observe.redaction import HIDDEN, is_secret, redact

_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "null": "none"}


def convert(name: str, kind: Any, raw: Any, source: str) -> Any:
    """Return the value of the setting `name` as its type `kind`; InputError names the source and what is expected."""
    try:
        if name == "recommenders":
            return _parse_recommenders(raw)
        if name == "shares":
            raw = _parse_shares(raw)
        elif isinstance(raw, str):
            raw = _parse_text(raw, kind)
        return msgspec.convert(raw, kind, strict=not isinstance(raw, str | list | tuple | dict))
    except msgspec.ValidationError as error:
        shown = HIDDEN if is_secret(name) else redact(repr(raw))
        raise InputError(f"{source}: {name} is {shown[:100]}; it must be {_describe_type(kind, str(error))}") from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _parse_text(raw: str, kind: Any) -> Any:
    """Parse text of a variable or a flag: `none` becomes None, and a list is split at commas."""
    if raw.lower() == "none" and "None" in str(kind):
        return None
    return [part.strip() for part in raw.split(",")] if "tuple" in str(kind) else raw


def _parse_shares(raw: Any) -> Any:
    """Parse a table, `a=0.5,b=0.5`, or a list of such texts into a dict."""
    if isinstance(raw, Mapping):
        return dict(raw)
    if not isinstance(raw, str | list | tuple):
        raise InputError("shares must be a table; write [shares] and below it lines such as lcb = 0.5")
    found: dict[str, str] = {}
    for part in _split_parts(raw):
        name, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"{part!r} is not NAME=SHARE; write, for example, lcb=0.5")
        found[name.strip()] = value.strip()
    return found


def _parse_recommenders(raw: Any) -> tuple[RecommenderSpec, ...]:
    """Parse TOML tables, or texts `NAME=BANDIT[:everyone]`."""
    if isinstance(raw, tuple | list) and raw and all(isinstance(one, Mapping) for one in raw):
        return tuple(_parse_recommender(i, one) for i, one in enumerate(raw, start=1))
    if not isinstance(raw, str) and not (isinstance(raw, list | tuple) and all(isinstance(one, str) for one in raw)):
        raise InputError('recommenders must be tables; write [[recommenders]] and below it name = "..."')
    found: list[RecommenderSpec] = []
    for part in _split_parts(raw):
        name, equals, rest = part.partition("=")
        bandit, _, scope = rest.partition(":")
        if not equals or not name or not bandit:
            raise InputError(f"{part!r} is not NAME=BANDIT; write, for example, lcb=thompson or all=linucb:everyone")
        found.append(_parse_recommender(len(found) + 1, {"name": name, "bandit": bandit, "scope": scope or "user"}))
    return tuple(found)


def _parse_recommender(number: int, table: Mapping[str, Any]) -> RecommenderSpec:
    known = get_type_hints(RecommenderSpec)
    for name in table:
        if name not in known:
            raise InputError(f"recommender {number}: unknown field {name!r}; the fields are {', '.join(known)}")
    if "name" not in table:
        raise InputError(f'recommender {number} has no name; add name = "..."')
    for name, value in table.items():
        expected: Any = {"settings": dict, "warmup": dict, "uniform": int | float, "item_effects": bool}.get(name, str)
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            kind = {dict: "a table", str: "text", bool: "true or false"}.get(expected, "a number")
            raise InputError(f"recommender {table['name']}: {name} is {value!r}; it must be {kind}")
    return RecommenderSpec(**table)


def _split_parts(raw: Any) -> list[str]:
    texts = [raw] if isinstance(raw, str) else list(raw)
    return [part.strip() for text in texts for part in str(text).split(",") if part.strip()]


def _describe_type(kind: Any, said: str) -> str:
    """Say what a value of this type must be; `said` is msgspec's message, used for types not listed here."""
    if "Literal" in str(kind):
        return "one of " + ", ".join(getattr(kind, "__args__", ()))
    if "tuple" in str(kind):
        return "two numbers (low,high)" if "float" in str(kind) else "a list of names (a,b,c)"
    expected = said.partition("Expected `")[2].partition("`")[0]
    return " or ".join(_WORDS.get(one, one) for one in expected.split(" | ")) or f"another value ({said})"
