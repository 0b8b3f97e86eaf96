"""Settings from four places, the later the stronger: defaults, a TOML file, the environment, flags.

    port                        port = 9000                          LCB_PORT=9000
    learning.retrain_every      [learning] retrain_every = 100       LCB_LEARNING__RETRAIN_EVERY=100
    categories                  categories = ["sport", "arts"]       LCB_CATEGORIES=sport,arts
    recommenders                [[recommenders]] name = "lcb" ...    LCB_RECOMMENDERS=lcb=thompson,all=linucb:everyone
    shares                      [shares] lcb = 0.5                   LCB_SHARES=lcb=0.5,all=0.5

The names are those of the fields of `Settings`, so a new setting is known everywhere at once.  A name that is nearly
one of them is refused, with the one that was meant.
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
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.observe.redaction import HIDDEN, is_secret, redact

PREFIX = "LCB_"
FILE = "lcb.toml"
_NOT_SETTINGS = ("LCB_CONFIG", "LCB_KEY", "LCB_URL")
_NOT_OURS = ("LCB_TEST_", "LCB_DRILLS_")
_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "null": "none"}


@dataclass(frozen=True)
class Value:
    """A setting and where it comes from: default, a file, a variable of the environment or a flag."""

    value: Any
    source: str


@dataclass(frozen=True)
class Config:
    """The settings, and of each its value and source by dotted name; `unknown` are variables that are no settings."""

    settings: Settings
    values: dict[str, Value]
    unknown: tuple[str, ...] = ()

    def shown(self) -> dict[str, Value]:
        """What may be printed: no passwords, no keys."""
        return {
            name: Value(HIDDEN if is_secret(name) and one.value is not None else _shown(one.value), one.source)
            for name, one in self.values.items()
        }


def kinds(cls: type = Settings, before: str = "") -> dict[str, Any]:
    """The type of every setting by its dotted name.

    >>> kinds()["learning.retrain_every"]
    int | None
    """
    hints = get_type_hints(cls)
    found: dict[str, Any] = {}
    for field in fields(cls):
        kind = hints[field.name]
        if is_dataclass(kind):
            found |= kinds(kind, f"{before}{field.name}.")  # type: ignore[arg-type]
        else:
            found[f"{before}{field.name}"] = kind
    return found


def variable(name: str) -> str:
    """The variable of the environment for a setting.

    >>> variable("learning.retrain_every")
    'LCB_LEARNING__RETRAIN_EVERY'
    """
    return PREFIX + name.upper().replace(".", "__")


def load(
    flags: Mapping[str, Any] | None = None, *, file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None, folder: str | os.PathLike[str] = ".",
) -> Config:  # fmt: skip
    """All of it.  `flags` are by dotted name, None where one was not given.

    >>> config = load({"port": 9000}, environment={"LCB_LEARNING__RETRAIN_EVERY": "none"}, folder="/nowhere")
    >>> config.settings.port, config.settings.learning.retrain_every
    (9000, None)
    >>> config.values["learning.retrain_every"].source
    'LCB_LEARNING__RETRAIN_EVERY'
    >>> load(environment={"LCB_PROT": "9000"}, folder="/nowhere")
    Traceback (most recent call last):
    lcb.errors.InputError: LCB_PROT is no setting; did you mean LCB_PORT?
    """
    known, environment = kinds(), os.environ if environment is None else environment
    values = {name: Value(value, "default") for name, value in _flat(Settings()).items()}
    place = _file(file, environment, Path(folder))
    if place is not None:
        values |= {name: _made(name, known[name], raw, str(place)) for name, raw in _read(place, known).items()}
    names, unknown = _variables(environment, known)
    for key, name in names.items():
        raw = environment[key]
        if name == "port" and raw.startswith("tcp://"):
            raise InputError(
                f"{key} is {raw!r}, which Kubernetes sets for a service named lcb; name the service otherwise, or set "
                "enableServiceLinks: false"
            )
        values[name] = _made(name, known[name], raw, key)
    for name, raw in (flags or {}).items():
        if raw is not None:
            values[name] = _made(name, known[name], raw, _flag(name))
    return Config(_build(Settings, values), values, unknown)


def _build(cls: Any, values: Mapping[str, Value], before: str = "") -> Any:
    hints, made = get_type_hints(cls), {}
    for field in fields(cls):
        kind, name = hints[field.name], f"{before}{field.name}"
        made[field.name] = _build(kind, values, f"{name}.") if is_dataclass(kind) else values[name].value
    return cls(**made)


def _flat(settings: Any, before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        found |= _flat(value, f"{before}{field.name}.") if is_dataclass(value) else {f"{before}{field.name}": value}
    return found


# Where values come from


def _file(given: str | os.PathLike[str] | None, environment: Mapping[str, str], folder: Path) -> Path | None:
    wanted = given or environment.get("LCB_CONFIG")
    if wanted is not None:
        return Path(wanted)
    usual = folder / FILE
    return usual if usual.is_file() else None


def _read(place: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    try:
        with place.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise InputError(f"{place} cannot be read ({error.strerror}); give the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{place} is not TOML ({error}); mend it there") from None
    groups = {name.split(".")[0] for name in known if "." in name}
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name in groups:
            if not isinstance(value, dict):
                raise InputError(f"{place}: {name} is a table: write [{name}], and its settings below")
            found |= {f"{name}.{inner}": one for inner, one in value.items()}
        else:
            found[name] = value
    for name in found:
        if name not in known:
            raise InputError(f"{place}: {name} is no setting{_meant(name, known)}")
    return found


def _variables(environment: Mapping[str, str], known: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variable -> setting, and those that nobody here reads."""
    settings = {variable(name): name for name in known}
    names, unknown = {}, []
    for key in environment:
        if not key.startswith(PREFIX) or key in _NOT_SETTINGS or key.startswith(_NOT_OURS):
            continue
        if key in settings:
            names[key] = settings[key]
            continue
        meant = _near(key.removeprefix(PREFIX).lower().replace("__", "."), known)
        if meant is not None:
            raise InputError(f"{key} is no setting; did you mean {variable(meant)}?")
        if "__" in key:
            raise InputError(f"{key} is no setting; lcb config show lists them")
        unknown.append(key)
    return names, tuple(unknown)


def _near(name: str, known: Mapping[str, Any]) -> str | None:
    """The setting that was meant, written in full or by its last part."""
    last = {full.rsplit(".", 1)[-1]: full for full in known}
    found = get_close_matches(name, [*known, *last], n=1, cutoff=0.75)
    return last.get(found[0], found[0]) if found else None


def _meant(name: str, known: Mapping[str, Any]) -> str:
    meant = _near(name, known)
    groups = {full.split(".")[0] for full in known if "." in full}
    if meant is None and (found := get_close_matches(name, groups, n=1, cutoff=0.75)):
        return f"; did you mean [{found[0]}]?"
    return "; lcb config show lists them" if meant is None else f"; did you mean {meant}?"


_FLAGS = {
    "recommenders": "recommender", "shares": "share", "learning.n_classes": "classes",
    "learning.n_warmup_users": "warmup-users",
}  # fmt: skip


def _flag(name: str) -> str:
    return "--" + _FLAGS.get(name, name.rsplit(".", 1)[-1].replace("_", "-"))


# What they say


def _made(name: str, kind: Any, raw: Any, source: str) -> Value:
    try:
        if name == "recommenders":
            return Value(_recommenders(raw), source)
        if name == "shares":
            raw = _pairs(raw)
        elif isinstance(raw, str):
            raw = _unfolded(raw, kind)
        return Value(msgspec.convert(raw, kind, strict=not isinstance(raw, str | list | tuple | dict)), source)
    except msgspec.ValidationError as error:
        shown = HIDDEN if is_secret(name) else redact(repr(raw))
        raise InputError(f"{source}: {name} is {shown[:100]}; wanted {_wanted(kind, str(error))}") from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _unfolded(raw: str, kind: Any) -> Any:
    """Text as it is written in the environment and in flags: `none`, and lists with commas."""
    if raw.lower() == "none" and "None" in str(kind):
        return None
    return [part.strip() for part in raw.split(",")] if "tuple" in str(kind) else raw


def _pairs(raw: Any) -> Any:
    """`a=0.5,b=0.5`, or a list of such, as a table."""
    if isinstance(raw, Mapping):
        return dict(raw)
    if not isinstance(raw, str | list | tuple):
        raise InputError("shares are a table: write [shares], and lcb = 0.5 below")
    found: dict[str, str] = {}
    for part in _parts(raw):
        name, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"{part!r} is no NAME=SHARE; write it as lcb=0.5")
        found[name.strip()] = value.strip()
    return found


def _recommenders(raw: Any) -> tuple[RecommenderSpec, ...]:
    """Tables of TOML, or `NAME=BANDIT[:everyone]`."""
    if isinstance(raw, tuple | list) and raw and all(isinstance(one, Mapping) for one in raw):
        return tuple(_recommender(i, one) for i, one in enumerate(raw, start=1))
    if not isinstance(raw, str) and not (isinstance(raw, list | tuple) and all(isinstance(one, str) for one in raw)):
        raise InputError("recommenders are tables: write [[recommenders]], and name = ... below")
    found: list[RecommenderSpec] = []
    for part in _parts(raw):
        name, equals, rest = part.partition("=")
        bandit, _, scope = rest.partition(":")
        if not equals or not name or not bandit:
            raise InputError(f"{part!r} is no NAME=BANDIT; write it as lcb=thompson or population=linucb:everyone")
        found.append(_recommender(len(found) + 1, {"name": name, "bandit": bandit, "scope": scope or "user"}))
    return tuple(found)


def _recommender(place: int, table: Mapping[str, Any]) -> RecommenderSpec:
    known = get_type_hints(RecommenderSpec)
    for name in table:
        if name not in known:
            raise InputError(f"recommender {place}: {name} is none of {', '.join(known)}")
    if "name" not in table:
        raise InputError(f"recommender {place} has no name; give it one")
    for name, value in table.items():
        wanted = dict if name in ("settings", "warmup") else str
        if not isinstance(value, wanted):
            kind = "a table" if wanted is dict else "text"
            raise InputError(f"recommender {table['name']}: {name} is {value!r}; wanted {kind}")
    return RecommenderSpec(**table)


def _parts(raw: Any) -> list[str]:
    texts = [raw] if isinstance(raw, str) else list(raw)
    return [part.strip() for text in texts for part in str(text).split(",") if part.strip()]


def _wanted(kind: Any, said: str) -> str:
    if "Literal" in str(kind):
        return "one of " + ", ".join(getattr(kind, "__args__", ()))
    if "tuple" in str(kind):
        return "two numbers: low,high" if "float" in str(kind) else "names: a,b,c"
    expected = said.partition("Expected `")[2].partition("`")[0]
    return " or ".join(_WORDS.get(one, one) for one in expected.split(" | ")) or f"something else ({said})"


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, tuple):
        return [_shown(one) for one in value]
    if isinstance(value, RecommenderSpec):
        return msgspec.json.decode(value.to_json())
    return value
