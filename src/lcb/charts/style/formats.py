"""Formats numbers, percentages and names for charts and tables."""

from __future__ import annotations

import numpy as np


def escape_unprintable(name: str) -> str:
    """Escape unprintable characters: a terminal interprets them, and the chart renderer rejects them.

    >>> escape_unprintable("café"), escape_unprintable("a\\x1b[31m")
    ('café', 'a\\\\x1b[31m')
    """
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in name)


def format_percent(share: float) -> str:
    return "<1 %" if 0 < share < 0.01 else ">99 %" if 0.99 < share < 1 else f"{100 * share:.0f} %"


def format_number(value: float, size: float) -> str:
    """Format a number with the decimals that numbers up to `size` need: three significant digits, two below 1.

    >>> format_number(-0.251, 0.9), format_number(18.42, 18.42), format_number(2e-7, 2e-7)
    ('−0.25', '18.4', '2.0e-07')
    """
    text = format(abs(value), number_format(size))
    return f"−{text}" if value < 0 and text.strip("0.") else text


def number_format(size: float) -> str:
    """Return the format specifier for numbers up to `size`, valid in Python and in Vega."""
    power = int(np.floor(np.log10(abs(size)))) if size else 2
    return f",.{max(2 - power, 0) - (power < 0)}f" if -5 < power < 9 else ".1e"
