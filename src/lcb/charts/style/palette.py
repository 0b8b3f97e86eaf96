"""Every colour of the charts, the web pages and the HTML report, read from palette.json beside this file.

    charts            colours of the charts; an algorithm has a colour and the index of its dash in `theme.DASHES`
    visitor-pages     custom properties of style.css, light and dark
    operator-pages    custom properties of dashboard.css, light and dark
    report            custom properties of the report of `lcb reproduce`

The service serves the pages' colours from here (`serve/pages/palette.py`); no other file holds a colour.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

PALETTE: dict[str, Any] = json.loads((files("lcb.charts.style") / "palette.json").read_bytes())


def css_variables(colours: Mapping[str, str]) -> str:
    """Return a CSS rule that declares a custom property per colour.

    >>> css_variables({"ink": "navy", "paper": "linen"})
    ':root { --ink: navy; --paper: linen; }'
    """
    return f":root {{ {' '.join(f'--{name}: {colour};' for name, colour in colours.items())} }}"
