"""Numbers as text, with the digits that matter and a minus sign that is one; names as text that can be shown."""

from __future__ import annotations

import numpy as np


def printable(name: str) -> str:
    """A name with its unprintable letters written out: a terminal would obey them, the renderer of charts abort.

    >>> printable("café"), printable("a\\x1b[31m")
    ('café', 'a\\\\x1b[31m')
    """
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in name)


def percent(share: float) -> str:
    return "<1 %" if 0 < share < 0.01 else ">99 %" if 0.99 < share < 1 else f"{100 * share:.0f} %"


def number(value: float, size: float) -> str:
    """With the two or three digits that matter among numbers of this size.

    >>> number(-0.251, 0.9), number(18.42, 18.42), number(12345.0, 12345.0), number(2e-7, 2e-7)
    ('−0.25', '18.4', '12,345', '2.0e-07')
    """
    text = format(abs(value), number_format(size))
    return f"−{text}" if value < 0 and text.strip("0.") else text


def number_format(size: float) -> str:
    """As Python and Vega both read it."""
    power = int(np.floor(np.log10(abs(size)))) if size else 2
    return f",.{max(2 - power, 0) - (power < 0)}f" if -5 < power < 9 else ".1e"
