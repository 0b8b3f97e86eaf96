"""Runs one experiment and writes its chart, its numbers and its claims to a folder."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

from lcb import charts
from lcb.progress import Progress, silent
from lcb.storage.files import check_writable, create_folder, write_whole


def reproduce(
    name: str, experiment: ModuleType, folder: Path, command: str, progress: Progress = silent, **options: Any
) -> Any:
    """Write NAME.png, NAME.svg and NAME.json to `folder`; return the result of the experiment."""
    charts.require()
    with create_folder(folder):
        for suffix in ("png", "svg", "json"):
            check_writable(folder / f"{name}.{suffix}")
        outcome = experiment.run(progress=progress, **options)
        chart = experiment.draw(outcome)
        for suffix in ("png", "svg"):
            charts.save(chart, folder / f"{name}.{suffix}")
        write_whole(
            folder / f"{name}.json", f"{json.dumps(_describe(experiment, outcome, command), indent=1)}\n".encode()
        )
    return outcome


def _describe(experiment: ModuleType, outcome: Any, command: str) -> dict[str, Any]:
    result = experiment.to_json(outcome)
    about = " ".join((experiment.__doc__ or "").split("\n\n", 1)[-1].split())
    return {
        "about": about,
        "command": command,
        "settings": _select_plain_settings(result),
        "claims": [claim.to_json() for claim in experiment.check_claims(outcome)],
        "summary": experiment.summarise(outcome),
        "result": result,
    }


def _select_plain_settings(result: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are single values."""
    first = result["steps"][0] if result.get("steps") else result
    found = first.get("settings") or first.get("sizes") or {}
    plain = {name: value for name, value in found.items() if isinstance(value, str | int | float | bool)}
    if result.get("steps"):
        plain["steps"] = ", ".join(str(one["settings"]["steps"]) for one in result["steps"])
    return plain
