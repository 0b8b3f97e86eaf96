"""The TypeScript client: compiled strictly, its types those of /openapi.json, every call tried on a real service."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from lcb.serve.web.keys import create
from lcb.storage.store.open_store import open_store
from support.harness import serving

HOME = Path(__file__).parents[2] / "clients" / "typescript"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client as JavaScript."""
    out = tmp_path_factory.mktemp("typescript") / "lcb"
    done = subprocess.run(
        [find("tsc"), "--project", HOME, "--outDir", out], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout
    (out / "package.json").write_text('{"type": "module"}')
    return out / "index.js"


def find(program: str) -> str:
    found = shutil.which(program)
    assert found, f"no {program}; on Debian and Ubuntu: apt-get install nodejs node-typescript"
    return found


def run_tests(name: str, **environment: str) -> None:
    command, environment = [find("node"), "--test", str(HOME / "test" / name)], {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout
    assert "\n# pass 0\n" not in done.stdout


def test_the_types_are_those_of_the_service():
    module = runpy.run_path(str(HOME / "write_types.py"))
    today = module["format_types"](module["read_document"]())
    assert (HOME / "src" / "types.ts").read_text() == today, "rewrite it with: scripts/write-typescript-types"


def test_it_repeats_and_refuses_as_the_python_client_does(compiled: Path):
    run_tests("retries.test.mjs", LCB_CLIENT=str(compiled))


def test_elements_of_a_batch_that_find_the_store_busy_are_sent_again(compiled: Path, tmp_path: Path):
    with serving(tmp_path, limits={"max_waiting": 60}) as server:
        run_tests("busy.test.mjs", LCB_CLIENT=str(compiled), LCB_URL=server.address)


def test_batches_lose_no_id(compiled: Path):
    run_tests("batches.test.mjs", LCB_CLIENT=str(compiled))


def test_answers_that_the_service_cannot_have_sent_are_refused(compiled: Path):
    run_tests("broken.test.mjs", LCB_CLIENT=str(compiled))


def test_keys_that_it_does_not_know_are_refused(compiled: Path):
    run_tests("keys.test.mjs", LCB_CLIENT=str(compiled))


def test_every_call_works_with_a_real_service(compiled: Path, tmp_path: Path):
    store = open_store(str(tmp_path / "lcb.db"))
    key = create(store, "app", "admin", now=0.0)
    store.close()
    with serving(tmp_path) as server:
        run_tests("service.test.mjs", LCB_CLIENT=str(compiled), LCB_URL=server.address, LCB_KEY=key)
