from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from inspect import ismodule
from pathlib import Path
from types import ModuleType

import pytest

import lcb
from lcb import errors

ROOT = Path(__file__).parents[1]
PACKAGES = ("lcb", "lcb.bandits", "lcb.recommenders", "lcb.evaluate", "lcb.storage", "lcb.theory")


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_only_the_lazy_loader():
    ours = loaded_by("import lcb") - loaded_by("import ast, importlib")
    assert ours == {"lcb", "lazy_loader"}


def test_the_entry_point_of_the_command_line_loads_only_the_lazy_loader():
    ours = loaded_by("import lcb.cli.main") - loaded_by("import ast, errno, importlib, io, signal, typing")
    assert ours == {"lcb", "lazy_loader", "__future__"}


def test_the_command_line_starts_without_the_numeric_libraries():
    assert not loaded_by("import lcb.cli.app") & {"scipy", "numba", "pyarrow", "safetensors", "altair"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package):
    module = import_module(package)
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_there_is_refused(package):
    with pytest.raises(AttributeError, match="magic"):
        import_module(package).magic  # noqa: B018


def test_the_top_of_the_package_has_every_error_and_few_other_names():
    raised = {name for name in vars(errors) if not name.startswith("_") and isinstance(getattr(errors, name), type)}
    others = set(lcb.__all__) - raised
    assert raised <= set(lcb.__all__)
    assert len([name for name in others if not ismodule(getattr(lcb, name))]) <= 20


def test_every_recommender_and_bandit_is_a_public_name_of_its_package():
    for package in ("bandits", "recommenders"):
        names = set(import_module(f"lcb.{package}").__all__)
        for path in (ROOT / "src/lcb" / package).rglob("[a-z]*.py"):
            module = import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
            verbs = {
                name for name, value in vars(module).items() if isinstance(value, type) and _is_public(value, module)
            }
            assert verbs <= names, path


def _is_public(value: type, module: ModuleType) -> bool:
    return (
        value.__module__ == module.__name__ and hasattr(value, "choose") and not getattr(value, "_is_protocol", False)
    )


def test_nothing_that_is_saved_or_received_is_a_pickle():
    texts = {path: path.read_text().replace("allow_pickle=False", "") for path in (ROOT / "src").rglob("*.py")}
    sources = [path for path, text in texts.items() if "pickle" in text]
    assert sources == []
