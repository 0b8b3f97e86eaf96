"""The HTML report: every figure, our numbers beside the paper's, and which of its statements hold.

The page is built from the NAME.json and NAME.svg of each experiment.  It contains its pictures and loads no other file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

from lcb.charts.style.palette import PALETTE, css_variables
from lcb.errors import InputError
from lcb.experiments import EXPERIMENTS
from lcb.experiments.claims import Claim
from lcb.version import __version__


@dataclass(frozen=True)
class Section:
    """One experiment, read from its files."""

    name: str
    about: str
    command: str
    settings: dict[str, Any]
    claims: tuple[Claim, ...]
    summary: tuple[str, ...]
    svg: str

    @classmethod
    def read(cls, folder: Path, name: str) -> Section | None:
        """Read the section of `name`; None if the experiment has not been run."""
        numbers, picture = folder / f"{name}.json", folder / f"{name}.svg"
        if not (numbers.exists() and picture.exists()):
            return None
        try:
            found = json.loads(numbers.read_text())
            claims = tuple(Claim(**claim) for claim in found["claims"])
            return cls(
                name=name,
                about=found["about"],
                command=found["command"],
                settings=found["settings"],
                claims=claims,
                summary=tuple(found["summary"]),
                svg=_inline_svg(picture.read_text(), name),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{numbers} is not as `lcb reproduce` wrote it ({error}); run it again") from None


def render_page(sections: Sequence[Section], missing: Sequence[str]) -> str:
    """Return the whole page as HTML."""
    held = [claim for section in sections for claim in section.claims if claim.holds]
    failed = [(section.name, claim) for section in sections for claim in section.claims if not claim.holds]
    contents = "".join(
        f'<li><a href="#{s.name}">{escape(s.name)}</a> {escape(EXPERIMENTS.get(s.name, s.name))}</li>' for s in sections
    )
    body = "".join(_render_section(section) for section in sections)
    not_run = "".join(f"<li><code>lcb reproduce {escape(name)}</code></li>" for name in missing)
    gaps = f"<h2>Not run</h2><ul>{not_run}</ul>" if missing else ""
    differs = "".join(
        f'<li><a href="#{name}">{escape(name)}</a>: {escape(claim.what)}: {escape(claim.ours)}, the paper: '
        f"{escape(claim.paper)}. {escape(claim.why)}</li>"
        for name, claim in failed
    )
    verdict = f"<ul>{differs}</ul>" if failed else "<p>All statements that were tested hold.</p>"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Latent Contextual Bandits, reproduced</title><style>
{css_variables(PALETTE["report"])}{_STYLE}</style></head><body><main>
<h1>Latent Contextual Bandits, reproduced</h1>
<p class="lead">The figures and tables of Zhou &amp; Brunskill (IJCAI 2016), run anew by <code>lcb</code> {__version__}
on {date.today().isoformat()}. {len(held)} of {len(held) + len(failed)} statements of the paper hold in these runs.
A statement about a gain on real data counts as holding if its direction does; sizes are shown beside the paper's.</p>
<nav><ol>{contents}</ol></nav>
<h2>Statements that do not hold</h2>{verdict}{body}{gaps}
</main></body></html>
"""


def _render_section(section: Section) -> str:
    rows = "".join(
        f"<tr><td>{escape(claim.what)}</td><td>{escape(claim.paper)}</td><td>{escape(claim.ours)}</td>"
        f'<td class="{"yes" if claim.holds else "no"}">{"holds" if claim.holds else "differs"}</td></tr>'
        for claim in section.claims
    )
    head = "<tr><th>statement</th><th>the paper</th><th>here</th><th></th></tr>"
    table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>" if rows else ""
    settings = ", ".join(
        f"{name} {_format_value(value)}" for name, value in section.settings.items() if value is not None
    )
    numbers = escape("\n".join(section.summary))
    return f"""
<section id="{section.name}"><h2>{escape(section.name)}: {escape(EXPERIMENTS.get(section.name, section.name))}</h2>
<p>{escape(section.about)}</p><figure>{section.svg}</figure>{table}
<details><summary>Numbers</summary><pre>{numbers}</pre></details>
<p class="small">{escape(settings)}<br><code>{escape(section.command)}</code></p></section>"""


def _inline_svg(svg: str, name: str) -> str:
    """Return the SVG without its header and with unique ids, because several share one page."""
    svg = svg[svg.index("<svg") :]
    for found in set(re.findall(r'id="([^"]+)"', svg)):
        svg = svg.replace(f'id="{found}"', f'id="{name}-{found}"').replace(f"#{found})", f"#{name}-{found})")
    return svg


def _format_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


_STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 Georgia, 'Times New Roman', serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1, h2, nav, table, .small, summary { font-family: Helvetica, Arial, sans-serif; }
h1 { font-size: 2rem; margin: 0 0 .5rem; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
.lead { font-size: 1.1rem; } .small { font-size: .8rem; color: var(--soft); }
nav { font-size: .95rem; border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); padding: .25rem 0; }
a { color: var(--link); } code, pre { font: .85rem/1.45 ui-monospace, Menlo, Consolas, monospace; }
figure { margin: 1rem 0; overflow-x: auto; } svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: .75rem 0; }
th, td { text-align: left; padding: .4rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: normal; } .yes { color: var(--yes); } .no { color: var(--no); font-weight: bold; }
pre { background: var(--code); padding: .75rem; overflow-x: auto; } details { margin: .5rem 0; }
@media print {
  main { max-width: none; padding: 0; } section { break-inside: avoid; } nav { display: none; } a { color: inherit; }
}
"""
