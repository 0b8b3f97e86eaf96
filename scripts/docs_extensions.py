"""Extensions of the API reference: names that load lazily are documented, doctests are shown as code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe


class LazyPackages(griffe.Extension):
    """Export the names of a package's `__init__.pyi`, from which they are loaded lazily."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for module in (pkg, *(one for one in pkg.modules.values() if not one.is_alias)):
            stub = Path(str(module.filepath)).with_name("__init__.pyi")
            if stub.exists():
                module.exports = re.findall(r" as (\w+)$", stub.read_text(), flags=re.MULTILINE)


class FenceDoctests(griffe.Extension):
    """Put every doctest of a docstring into a fenced block, so that Markdown shows it as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fence_doctests(obj.docstring.value)


def fence_doctests(text: str) -> str:
    """
    >>> fence_doctests("Add.\\n>>> 1 + 1\\n2").splitlines()
    ['Add.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    return re.sub(r"^[ ]*>>> (?:.|\n(?!\s*\n|\Z))*", _fence, text, flags=re.MULTILINE).rstrip()


def _fence(found: re.Match[str]) -> str:
    lines = found.group().splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(["", "```pycon", *(line[indent:] for line in lines), "```", ""])
