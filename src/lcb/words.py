"""Counts in words, `1 class`, `2 classes`, lists of names, and the name that was perhaps meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_OF_ONE = {"are": "is", "have": "has", "were": "was", "offer": "offers"}


def format_count(n: float, noun: str, verb: str = "") -> str:
    """Return a number with its noun in the singular or the plural, and with a verb that is given in the plural.

    >>> format_count(1, "class"), format_count(3, "class"), format_count(20_000, "new user")
    ('1 class', '3 classes', '20,000 new users')
    >>> format_count(0, "category"), format_count(1, "decision", "are"), format_count(2, "row", "have")
    ('0 categories', '1 decision is', '2 rows have')
    """
    if n == 1:
        words = noun
    elif noun.endswith(("s", "x", "ch")):
        words = f"{noun}es"
    else:
        words = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{n:,} {words}" + (f" {_OF_ONE[verb] if n == 1 else verb}" if verb else "")


def list_names(names: Sequence[str], most: int = 12) -> str:
    """Return the names in their order, at most so many.

    >>> list_names(["food", "tennis"]), list_names(["a", "b", "c", "d"], most=2)
    ('food, tennis', 'a, b and 2 more')
    """
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left:,} more" if left > 0 else "")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a question that names the most similar of the known names; empty if none is similar.

    >>> suggest("lcb-men", ["lcb-mean", "random"]), suggest("x", ["lcb-mean"])
    ('did you mean lcb-mean?', '')
    """
    close = get_close_matches(name, list(known), 1, cutoff=0.7)
    return f"did you mean {close[0]}?" if close else ""
