from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lcb

ROOT = Path(__file__).parents[1]


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_nothing_else():
    ours = loaded_by("import lcb") - loaded_by("import importlib, typing")
    assert ours == {"lcb", "__future__"}


def test_the_door_of_the_command_line_loads_nothing_else():
    ours = loaded_by("import lcb.cli") - loaded_by("import errno, importlib, io, typing")
    assert ours == {"lcb", "__future__"}


def test_the_command_line_starts_without_the_numeric_libraries():
    assert not loaded_by("import lcb.cli.app") & {"scipy", "numba", "pyarrow", "safetensors", "altair"}


@pytest.mark.parametrize("name", lcb.__all__)
def test_every_public_name_is_there(name):
    assert getattr(lcb, name) is not None
    assert name in dir(lcb)


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        lcb.magic  # noqa: B018


def test_nothing_that_is_saved_or_received_is_a_pickle():
    sources = [path for path in (ROOT / "src").rglob("*.py") if "pickle" in path.read_text()]
    assert sources == []
