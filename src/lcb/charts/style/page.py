"""HTML pages that contain their pictures and load no other file."""

from __future__ import annotations

import re
from html import escape

from lcb.charts.style.palette import PALETTE, css_variables


def render_page(title: str, body: str) -> str:
    """Return a whole page: a title, the colours and fonts of the reports, and `body`, which is HTML."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>
{css_variables(PALETTE["report"])}{_STYLE}</style></head><body><main>
<h1>{escape(title)}</h1>
{body}
</main></body></html>
"""


def inline_svg(svg: str, name: str) -> str:
    """Return the SVG without its header and with unique ids, because several share one page."""
    svg = svg[svg.index("<svg") :]
    for found in set(re.findall(r'id="([^"]+)"', svg)):
        svg = svg.replace(f'id="{found}"', f'id="{name}-{found}"').replace(f"#{found})", f"#{name}-{found})")
    return svg


_STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 Georgia, 'Times New Roman', serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1, h2, nav, table, .small, summary { font-family: Helvetica, Arial, sans-serif; }
h1 { font-size: 2rem; margin: 0 0 .5rem; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
.lead { font-size: 1.1rem; } .small { font-size: .8rem; color: var(--soft); }
nav { font-size: .95rem; border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); padding: .25rem 0; }
a { color: var(--link); } code, pre { font: .85rem/1.45 ui-monospace, Menlo, Consolas, monospace; }
figure { margin: 1rem 0; padding: 0 2rem; overflow-x: auto; } svg { max-width: 100%; height: auto; overflow: visible; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: .75rem 0; }
th, td { text-align: left; padding: .4rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: normal; } .yes { color: var(--yes); } .no { color: var(--no); font-weight: bold; }
pre { background: var(--code); padding: .75rem; overflow-x: auto; } details { margin: .5rem 0; }
@media print {
  main { max-width: none; padding: 0; } section { break-inside: avoid; } nav { display: none; } a { color: inherit; }
}
"""
