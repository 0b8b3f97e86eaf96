"""The module that draws charts in a browser."""

from __future__ import annotations

import gzip
import subprocess
import sys

import pytest

from lcb.errors import LCBError, MissingExtra
from lcb.serve.pages import bundle as file


def test_the_module_exports_the_one_name_that_pages_import_and_holds_the_interpreter():
    made = file.load_bundle()
    assert made.script.rstrip().endswith(b" as vegaEmbed};")
    assert b"expressionInterpreter" in made.script
    assert gzip.decompress(made.gzipped) == made.script
    assert len(made.gzipped) < 400_000


def test_it_is_made_once():
    assert file.load_bundle() is file.load_bundle()


def test_the_engine_that_makes_it_is_not_loaded_here():
    code = (
        "import sys; from lcb.serve.pages.bundle import load_bundle; load_bundle(); print('vl_convert' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_failure_says_what_the_engine_said(monkeypatch):
    monkeypatch.setattr(file, "_WRITE", "raise SystemExit('no such version')")
    with pytest.raises(LCBError, match=r"did not build .*: no such version; reinstall lcb\[plots\]"):
        file._build.__wrapped__()


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(file.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="vl-convert-python is not installed; in a checkout of lcb run: pip install"):
        file._build.__wrapped__()
