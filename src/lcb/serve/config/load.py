"""Loads the settings: flags override environment variables, these override a TOML file, the rest are defaults.

    port                        port = 9000                          LCB_PORT=9000
    learning.retrain_every      [learning] retrain_every = 100       LCB_LEARNING__RETRAIN_EVERY=100
    categories                  categories = ["sport", "arts"]       LCB_CATEGORIES=sport,arts
    recommenders                [[recommenders]] name = "lcb" ...    LCB_RECOMMENDERS=lcb=thompson,all=linucb:everyone
    shares                      [shares] lcb = 0.5                   LCB_SHARES=lcb=0.5,all=0.5

All names are those of the fields of `Settings`.  A name that is almost one of them is refused, with a suggestion.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from lcb.errors import InputError
from lcb.serve.config.convert import convert
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.observe.redaction import HIDDEN, is_secret, redact

PREFIX = "LCB_"
FILE = "lcb.toml"
_NOT_SETTINGS = ("LCB_CONFIG", "LCB_KEY", "LCB_URL")
_NAMES_OF_OTHERS = tuple(name.removeprefix(PREFIX) for name in _NOT_SETTINGS)
_NOT_OURS = ("LCB_TEST_", "LCB_DRILLS_")


@dataclass(frozen=True)
class Value:
    """The value of a setting and its source: default, a file, an environment variable or a flag."""

    value: Any
    source: str


@dataclass(frozen=True)
class Config:
    """The settings, and each value with its source by dotted name; `unknown` lists LCB_ variables that set nothing."""

    settings: Settings
    values: dict[str, Value]
    unknown: tuple[str, ...] = ()

    def masked(self) -> dict[str, Value]:
        """Return the values with passwords and keys hidden, to be printed."""
        return {
            name: Value(HIDDEN if is_secret(name) and one.value is not None else _mask(one.value), one.source)
            for name, one in self.values.items()
        }


def list_setting_types(cls: type = Settings, before: str = "") -> dict[str, Any]:
    """Return the type of every setting by dotted name.

    >>> list_setting_types()["learning.retrain_every"]
    int | None
    """
    hints = get_type_hints(cls)
    found: dict[str, Any] = {}
    for field in fields(cls):
        kind = hints[field.name]
        if is_dataclass(kind):
            found |= list_setting_types(kind, f"{before}{field.name}.")  # type: ignore[arg-type]
        else:
            found[f"{before}{field.name}"] = kind
    return found


def variable_name(name: str) -> str:
    """
    >>> variable_name("learning.retrain_every")
    'LCB_LEARNING__RETRAIN_EVERY'
    """
    return PREFIX + name.upper().replace(".", "__")


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] = ".",
) -> Config:
    """Load all settings; `flags` are by dotted name, with None for flags that were not given.

    >>> config = load({"port": 9000}, environment={"LCB_LEARNING__RETRAIN_EVERY": "none"}, folder="/nowhere")
    >>> config.settings.port, config.settings.learning.retrain_every
    (9000, None)
    >>> config.values["learning.retrain_every"].source
    'LCB_LEARNING__RETRAIN_EVERY'
    >>> load(environment={"LCB_PROT": "9000"}, folder="/nowhere")
    Traceback (most recent call last):
    lcb.errors.InputError: LCB_PROT is not a setting; did you mean LCB_PORT?
    """
    known, environment = list_setting_types(), os.environ if environment is None else environment
    values = {name: Value(value, "default") for name, value in _flatten(Settings()).items()}
    path = _find_file(file, environment, Path(folder))
    if path is not None:
        for name, raw in _read_file(path, known).items():
            values[name] = Value(convert(name, known[name], raw, str(path)), str(path))
    names, unknown = _read_variables(environment, known)
    for key, name in names.items():
        raw = environment[key]
        if name == "port" and raw.startswith("tcp://"):
            raise InputError(
                f"{key} is {raw!r}: Kubernetes sets this variable for a service named lcb; rename that service, or set "
                "enableServiceLinks: false"
            )
        values[name] = Value(convert(name, known[name], raw, key), key)
    for name, raw in (flags or {}).items():
        if raw is not None:
            flag = _flag_name(name)
            values[name] = Value(convert(name, known[name], raw, flag), flag)
    return Config(_build(Settings, values), values, unknown)


def _build(cls: Any, values: Mapping[str, Value], before: str = "") -> Any:
    """Build a settings object from values by dotted name."""
    hints, made = get_type_hints(cls), {}
    for field in fields(cls):
        kind, name = hints[field.name], f"{before}{field.name}"
        made[field.name] = _build(kind, values, f"{name}.") if is_dataclass(kind) else values[name].value
    return cls(**made)


def _flatten(settings: Any, before: str = "") -> dict[str, Any]:
    """Return the values of a settings object by dotted name."""
    found: dict[str, Any] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        found |= _flatten(value, f"{before}{field.name}.") if is_dataclass(value) else {f"{before}{field.name}": value}
    return found


def _find_file(given: str | os.PathLike[str] | None, environment: Mapping[str, str], folder: Path) -> Path | None:
    named = given or environment.get("LCB_CONFIG")
    if named is not None:
        return Path(named)
    default = folder / FILE
    return default if default.is_file() else None


def _read_file(path: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML ({error}); correct it there") from None
    groups = {name.split(".")[0] for name in known if "." in name}
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name in groups:
            if not isinstance(value, dict):
                raise InputError(f"{path}: {name} must be a table; write [{name}] and its settings below it")
            found |= {f"{name}.{inner}": one for inner, one in value.items()}
        else:
            found[name] = value
    for name in found:
        if name not in known:
            raise InputError(f"{path}: {name} is not a setting{_suggest(name, known)}")
    return found


def _read_variables(environment: Mapping[str, str], known: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return which setting each LCB_ variable sets, and the names of variables that set none."""
    settings = {variable_name(name): name for name in known}
    names, unknown = {}, []
    for key in environment:
        if not key.startswith(PREFIX) or key in _NOT_SETTINGS or key.startswith(_NOT_OURS):
            continue
        if key in settings:
            names[key] = settings[key]
            continue
        other = get_close_matches(key.removeprefix(PREFIX), _NAMES_OF_OTHERS, n=1, cutoff=0.75)
        if other:
            raise InputError(f"{key} is not a setting; did you mean {PREFIX}{other[0]}?")
        meant = _find_closest(key.removeprefix(PREFIX).lower().replace("__", "."), known)
        if meant is not None:
            raise InputError(f"{key} is not a setting; did you mean {variable_name(meant)}?")
        if "__" in key:
            raise InputError(f"{key} is not a setting; lcb config show lists them")
        unknown.append(key)
    return names, tuple(unknown)


def _find_closest(name: str, known: Mapping[str, Any]) -> str | None:
    """Return the most similar setting, comparing with full names and with their last parts."""
    last = {full.rsplit(".", 1)[-1]: full for full in known}
    found = get_close_matches(name, [*known, *last], n=1, cutoff=0.75)
    return last.get(found[0], found[0]) if found else None


def _suggest(name: str, known: Mapping[str, Any]) -> str:
    meant = _find_closest(name, known)
    groups = {full.split(".")[0] for full in known if "." in full}
    if meant is None and (found := get_close_matches(name, groups, n=1, cutoff=0.75)):
        return f"; did you mean [{found[0]}]?"
    return "; lcb config show lists them" if meant is None else f"; did you mean {meant}?"


_FLAGS = {  # flags whose names differ from their settings
    "recommenders": "recommender",
    "shares": "share",
    "learning.n_classes": "classes",
    "learning.n_warmup_users": "warmup-users",
}


def _flag_name(name: str) -> str:
    return "--" + _FLAGS.get(name, name.rsplit(".", 1)[-1].replace("_", "-"))


def _mask(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, tuple):
        return [_mask(one) for one in value]
    if isinstance(value, RecommenderSpec):
        return msgspec.json.decode(value.to_json())
    return value
