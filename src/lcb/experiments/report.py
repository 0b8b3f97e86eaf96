"""The HTML report: every figure, our numbers beside the paper's, and which of its statements hold.

The page is built from the NAME.json and NAME.svg of each experiment.  It contains its pictures and loads no other file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

from lcb.charts.style.page import inline_svg
from lcb.charts.style.page import render_page as render_html
from lcb.errors import InputError
from lcb.experiments import EXPERIMENTS, load_experiment
from lcb.experiments.claims import Claim
from lcb.experiments.real_data import Data, parse_tuned
from lcb.experiments.reproduce import reproduce
from lcb.progress import bar
from lcb.storage.files import read_json
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
                svg=inline_svg(picture.read_text(), name),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{numbers} is not as `lcb reproduce` wrote it ({error}); run it again") from None


def collect_sections(
    figures: Path, data: Path | None, like: float | None, n_runs: int, announce: Callable[[str], None]
) -> tuple[list[Section], list[str]]:
    """Return the sections of all experiments, run where their files are missing, and the names that need a log."""
    sections, missing = [], []
    for name in EXPERIMENTS:
        section = Section.read(figures, name)
        if section is None and (data is not None or not name.startswith("fig-3")):
            announce(name)
            _run_missing(name, figures, data, like, n_runs)
            section = Section.read(figures, name)
        if section is None:
            missing.append(name)
        else:
            sections.append(section)
    return sections, missing


def _run_missing(name: str, figures: Path, data: Path | None, like: float | None, n_runs: int) -> None:
    command = f"lcb reproduce {name}"
    with bar() as progress:
        if not name.startswith("fig-3"):
            reproduce(name, load_experiment(name), figures, f"{command} --runs {n_runs}", progress, n_runs=n_runs)
            return
        before = [figures / f"fig-3{letter}.json" for letter in "ab"]
        told = next((file for file in before if file.exists()), None)
        tuned = None if told is None or name == "fig-3c" else parse_tuned(read_json(told), str(told))
        words = f" --data {data}" + (f" --like {like:g}" if like is not None else "")
        log = Data(str(data), like=like, tuned=tuned)
        reproduce(name, load_experiment(name), figures, command + words, progress, data=log)


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
    return render_html(
        "Latent Contextual Bandits, reproduced",
        f"""<p class="lead">The figures and tables of Zhou &amp; Brunskill (IJCAI 2016), run anew by
<code>lcb</code> {__version__} on {date.today().isoformat()}.
{len(held)} of {len(held) + len(failed)} statements of the paper hold in these runs.
A statement about a gain on real data counts as holding if its direction does; sizes are shown beside the paper's.</p>
<nav><ol>{contents}</ol></nav>
<h2>Statements that do not hold</h2>{verdict}{body}{gaps}""",
    )


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


def _format_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
