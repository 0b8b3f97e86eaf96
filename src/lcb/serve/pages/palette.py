"""The static files made from the palette of the charts: two stylesheets, a JavaScript module and the icon.

palette-visitor.css     custom properties of the visitors' pages, light and dark
palette-operator.css    custom properties of the operator's pages, light and dark
palette.js              `CHARTS`: the colours that charts have in the light and in the dark
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from string import Template

from lcb.charts.style.palette import PALETTE, css_variables


def generate_files() -> dict[str, str]:
    """Return the text of each generated file by its name."""
    charts, visitor, operator = PALETTE["charts"], PALETTE["visitor-pages"], PALETTE["operator-pages"]
    areas = {f"area-{i}": colour for i, colour in enumerate(charts["areas"])}
    themes = {"light": charts["light"], "dark": charts["dark"]}
    return {
        "palette-visitor.css": _build_stylesheet(visitor["light"], visitor["dark"]),
        "palette-operator.css": _build_stylesheet(operator["light"] | areas, operator["dark"]),
        "palette.js": f"export const CHARTS = {json.dumps(themes)};\n",
        "icon.svg": Template(_ICON).substitute(visitor["light"]),
    }


def _build_stylesheet(light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    return f"{css_variables(light)}\n@media (prefers-color-scheme: dark) {{ {css_variables(dark)} }}\n"


_ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">\
<rect width="32" height="32" rx="7" fill="$accent"/>\
<path d="M8 9h16M8 15h16M8 21h9" stroke="$paper" stroke-width="3" stroke-linecap="round"/></svg>
"""
