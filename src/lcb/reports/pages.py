"""The HTML page about a log, with its pictures inside."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import date
from html import escape

import numpy as np

from lcb import charts
from lcb.charts.style.page import render_page
from lcb.models import LatentModels
from lcb.reports.findings import LogFindings
from lcb.version import __version__
from lcb.words import format_count

_MOST_ARMS = 15  # in a picture or a table


def render_findings(found: LogFindings) -> str:
    """Return the whole page."""
    parts = [
        _render_lead(found),
        f"<h2>What is in the log</h2>{_render_contents(found)}",
        f"<h2>The kinds of users</h2>{_render_classes(found)}",
        f"<h2>Who would gain</h2>{_render_gains(found)}",
        f"<h2>How much, and how sure</h2>{_render_estimate(found)}",
        f"<h2>What the log cannot say</h2>{_render_list(found.limits)}",
        f"<h2>What to do next</h2>{_render_next(found)}",
    ]
    return render_page(f"What {found.name} tells about its users", "\n".join(parts))


def _render_lead(found: LogFindings) -> str:
    answer = found.evaluation.answer if found.evaluation is not None else None
    kinds = format_count(len(found.classes), "kind")
    if answer is None:
        verdict = "The log cannot tell how much personal choices would gain; the reason is below."
    elif answer.low > 0:
        verdict = f"{answer.describe()}."
    else:
        verdict = f"{answer.describe()}: no gain is shown, since the interval reaches to 0 or below."
    return (
        f'<p class="lead">{escape(verdict)} The users are of {kinds}.</p>'
        f'<p class="small">Written by lcb {__version__} on {date.today().isoformat()}.</p>'
    )


def _render_contents(found: LogFindings) -> str:
    log = found.log
    lines = (
        f"{format_count(log.n_events, 'event')} of {format_count(log.n_users, 'user')} on "
        f"{format_count(log.n_items, 'item')}"
        + (f" in {format_count(len(log.categories), 'category')}" if log.categories else "")
        + f", read as {found.reading}"
        + (f" (a rating of {found.like:g} or more is liked)" if found.like is not None else "")
        + "."
    )
    users = charts.bars(
        [(f"{words} event{'' if words == '1' else 's'}", n) for words, n in found.sizes],
        "users",
        "Users by number of events",
    )
    often = np.argsort(-found.arm_counts, kind="stable")[:_MOST_ARMS]
    rows = [(found.arms[a], f"{found.arm_counts[a]:,}", f"{found.arm_rates[a]:.3g}") for a in often]
    kind = "category" if log.categories else "item"
    more = f" (the {_MOST_ARMS} most frequent of {len(found.arms):,})" if len(found.arms) > _MOST_ARMS else ""
    table = _render_table((kind, "labels", "mean reward"), rows)
    return f"<p>{escape(lines)}</p><figure>{charts.to_svg(users, 'users')}</figure><p>Labels{more}:</p>{table}"


def _render_classes(found: LogFindings) -> str:
    models, shown = found.fit.models, _choose_arms(found)
    kind = "category" if found.log.categories else "item"
    order = np.argsort(-models.pi, kind="stable")
    picture = LatentModels(
        models.pi[order], found.rates[:, shown], models.sigma2[order], tuple(found.arms[a] for a in shown)
    )
    rows = [
        (
            f"class {h + 1}",
            one.name,
            f"{100 * one.share:.0f} %",
            ", ".join(f"{arm} {rate:.2g}" for arm, rate in one.best),
        )
        for h, one in enumerate(found.classes)
    ]
    table = _render_table(("", "name", "share of users", "mean reward of what they like best"), rows)
    why = _render_list([f"{_capitalise(line)}." for line in found.fit.why])
    chart = charts.to_svg(charts.heat_map(picture, f"Mean reward of what was shown of each {kind}"), "classes")
    return f"{table}<figure>{chart}</figure><details><summary>Why these classes</summary>{why}</details>"


def _render_gains(found: LogFindings) -> str:
    rows = [
        (one.name, f"{100 * one.share:.0f} %", one.best[0][0], f"{one.with_common:.3g}", f"{one.with_own:.3g}",
         f"{one.gain:+.3g}" if one.gain > 0 else "nothing: it likes what everybody likes")
        for one in found.classes
    ]  # fmt: skip
    common = f"mean reward with {found.common}, best for everybody"
    heads = ("class", "share of users", "its best", common, "with its best", "gain")
    table = _render_table(heads, rows)
    note = (
        f"Best for everybody is what had the highest mean reward over all classes, each by its share. All means are of "
        f"rewards for what was really shown{_explain_categories(found)}, and once a user's class is known; the next "
        "section estimates what is left of the gain for new users."
    )
    return f"{table}<p class='small'>{escape(note)}</p>"


def _explain_categories(found: LogFindings) -> str:
    return " (an item counts for each of its categories)" if found.log.categories else ""


def _render_estimate(found: LogFindings) -> str:
    evaluation = found.evaluation
    if evaluation is None:
        return "<p>There is no estimate; the reason is in the next section.</p>"
    about = evaluation.settings
    rows = []
    for one in evaluation.outcomes:
        gain, error = one.gain_over(evaluation.population)
        said = "the reference" if one is evaluation.population else _format_gain(gain, error)
        rows.append((one.algorithm, f"{one.relative_ctr:.3f}", said))
    table = _render_table(("algorithm", "reward, relative to the log", "gain over one model for all users"), rows)
    how = (
        f"Estimated by serving {format_count(about['test_users'], 'new user')} for "
        f"{format_count(about['steps'], 'step')} in {format_count(about['seeds'], 'split')} of the users; trained on "
        f"{format_count(about['train_users'], 'other user')}."
    )
    answer = "<p class='lead'>" + escape(f"{evaluation.describe()}.") + "</p>"
    chart = charts.to_svg(evaluation.chart("Gain over one model for all users"), "gain")
    return f"{answer}<figure>{chart}</figure>{table}<p class='small'>{escape(how)}</p>"


def _format_gain(gain: float, error: float) -> str:
    if not np.isfinite(gain):
        return "-"
    return f"{gain:+.1f} % ± {error:.1f}" if np.isfinite(error) else f"{gain:+.1f} %"


def _render_next(found: LogFindings) -> str:
    log, lines = shlex.quote(found.name), []
    if found.columns:
        options = " ".join(f"--{name} {shlex.quote(value)}" for name, value in found.columns.items())
        lines.append(f"lcb import {log} {options} --out log")
        log = "log"
    more = f" --like {found.like:g}" if found.like is not None else f" --reading {found.reading}"
    lines.append(f"lcb learn {log}{more} --out models")
    lines.append(f"lcb serve --models models --items {log} --store decisions.db")
    ask = """curl -s localhost:8000/v1/decisions -d '{"user": "ann"}'"""
    after = (
        "The first two lines learn the classes and serve them with the items of the log; the last asks for a decision. "
        "Every decision is logged with its propensity, so that <code>lcb log export</code> and "
        "<code>lcb evaluate</code> answer what this log cannot."
    )
    return f"<pre>{escape(chr(10).join([*lines, ask]))}</pre><p>{after}</p>"


def _choose_arms(found: LogFindings) -> list[int]:
    """Return the arms on which the classes differ most, in the order of the log."""
    apart = found.rates.max(axis=0) - found.rates.min(axis=0)
    return sorted(np.argsort(-apart, kind="stable")[:_MOST_ARMS].tolist())


def _render_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _render_list(lines: list[str] | tuple[str, ...]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _capitalise(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
