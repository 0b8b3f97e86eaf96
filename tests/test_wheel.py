"""The wheel holds every file of the package, and its commands run where there is no checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[1]
NOT_PACKAGED = {".pyc", ".nbi", ".nbc"}  # written by Python and Numba beside the sources


def build(checkout: Path, out: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)],
        cwd=checkout,
        check=True,
        capture_output=True,
    )
    (wheel,) = out.glob("lcb-*.whl")
    return wheel


def left_out(wheel: Path) -> set[str]:
    """Files of the package that the wheel does not have."""
    package = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "lcb").rglob("*")
        if path.is_file() and path.suffix not in NOT_PACKAGED
    }
    return package - set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A venv with the wheel; it sees the other packages of this environment, and not the checkout."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place / "venv", with_pip=False, symlinks=True)
    python = place / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
    (site_packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages / "others.pth").write_text("\n".join(others) + "\n")
    return place / "venv"


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def run(installed: Path, folder: Path, *command: str) -> str:
    done = subprocess.run(
        [str(installed / "bin" / command[0]), *command[1:]],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def serving(installed: Path, folder: Path, *command: str) -> Iterator[str]:
    """The address at which this command serves, once it has printed it."""
    service = subprocess.Popen(
        [str(installed / "bin" / "lcb"), *command],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert service.stdout is not None
    printed = ""
    try:
        for line in service.stdout:
            printed += line
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found.group()
                return
        pytest.fail(f"{command} ended without serving:\n{printed}")
    finally:
        service.terminate()
        service.communicate(timeout=30)


def test_the_wheel_has_every_file_of_the_package(wheel):
    assert left_out(wheel) == set()


def test_a_file_that_is_left_out_is_named(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    settings = (ROOT / "pyproject.toml").read_text()
    packages = 'packages = ["src/lcb"]\n'
    (tmp_path / "pyproject.toml").write_text(settings.replace(packages, packages + 'exclude = ["headlines.json"]\n'))
    assert left_out(build(tmp_path, tmp_path / "dist")) == {"lcb/demo/headlines.json"}


def test_the_commands_run_from_the_wheel(installed, tmp_path):
    where = run(installed, tmp_path, "python", "-c", "import lcb; print(lcb.__file__)")
    assert where.startswith(str(installed)), "the checkout was imported"
    serve = ("serve", "--port", "0", "--store", "shop.db", "--items", "headlines")
    with serving(installed, tmp_path, *serve) as address, httpx.Client(base_url=address) as http:
        for page in ("/", "/study", "/dashboard"):
            text = http.get(page).raise_for_status().text
            assets = re.findall(r'(?:src|href)="/?([^"]+\.(?:js|css|svg))"', text)
            assert assets
            for asset in assets:
                http.get(asset).raise_for_status()
        decision = http.post("/v1/decisions", json={"user": "ann"}).raise_for_status().json()
        reward = {"decision_id": decision["decision_id"], "reward": 1}
        http.post("/v1/rewards", json=reward).raise_for_status()
    assert "lcb-auto" in run(installed, tmp_path, "lcb", "algorithms")
    run(installed, tmp_path, "lcb", "log", "verify", "shop.db")
