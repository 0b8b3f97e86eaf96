"""Small worlds that tests share, and a PostgreSQL for those that need one."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes
from lcb.models import LatentModels
from lcb.runtime import parallel
from lcb.stats import UserStats
from support.compile_once import compile_once

# Hypothesis tries the same examples in every run and judges no times: what fails here fails everywhere.  To look for
# new counterexamples: LCB_TEST_RANDOM=1 pytest ...
settings.register_profile(
    "check", derandomize=not os.environ.get("LCB_TEST_RANDOM"), database=None, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.load_profile("check")
compile_once()


# Without doctests, and slow to import: the processes that need them do so.
collect_ignore = ["support/preloaded.py", "cluster/ray_cases.py", "cluster/node_cases.py", "cluster/job_cases.py"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile, and never in thousands of tests and all that they import: they stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def rows_of(models: LatentModels, n_users: int, n_rows: int, seed: int):
    """Users of these classes with uniform arms: user (n,), x (n, d), reward (n,), label (users,)."""
    rng = np.random.default_rng(seed)
    users = SimulatedWorld(models, n_arms=1).draw(n_users, n_rows, rng)
    names = np.repeat(np.arange(n_users), n_rows)
    return names, users.contexts.reshape(len(names), -1), users.rewards.ravel(), users.label


def stats_of(models: LatentModels, n_users: int, n_rows: int, seed: int) -> tuple[UserStats, np.ndarray]:
    names, x, reward, label = rows_of(models, n_users, n_rows, seed)
    return UserStats.from_rows(names, x, reward), label


def largest_error(found: np.ndarray, true: np.ndarray) -> float:
    """Largest distance between true weights and found ones after the best matching."""
    from scipy.optimize import linear_sum_assignment

    distance = np.linalg.norm(true[:, None] - found[None], axis=2)
    return float(distance[linear_sum_assignment(distance)].max())


@pytest.fixture(scope="session", autouse=True)
def one_core() -> Iterator[None]:
    """Keep work in one thread of this process unless a test gives the number of workers.

    pytest-xdist already uses all cores.  A worker process takes a second of CPU to start, and threads of BLAS that wait
    for a core that others use burn the rest: with two threads, learning from moments took six times the CPU time.
    """
    import scipy.linalg  # noqa: F401  - has a BLAS of its own

    with pytest.MonkeyPatch.context() as patch, threadpool_limits(1, user_api="blas"):
        patch.setattr(parallel, "n_cores", lambda: 1)
        patch.setenv("OPENBLAS_NUM_THREADS", "1")  # of processes that tests start
        yield


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_not_ignored() -> Iterator[None]:
    """Take SIGINT here and in the processes that tests start, also where a shell started pytest as a background job.

    A shell without job control starts those with SIGINT ignored, and a process inherits that from its parent.
    """
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def same_log_handlers() -> Iterator[None]:
    """Take away the handlers that a service started inside a test has given to Python's logging."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers = [one for one in root.handlers if not isinstance(one, logging.StreamHandler) or one in before]
    root.setLevel(level)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def models() -> LatentModels:
    return paper_classes()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server: the one of `scripts/check`, else one of this process's own, stopped at the end."""
    if given := os.environ.get("LCB_TEST_POSTGRES"):
        yield given
        return
    script = Path(__file__).parents[1] / "scripts" / "postgres"
    started = subprocess.run([script, "start", "--while", str(os.getpid())], capture_output=True, text=True)
    if started.returncode != 0:
        raise RuntimeError(f"no PostgreSQL to test with: {started.stderr.strip()}")
    url = started.stdout.strip()
    yield url
    subprocess.run([script, "stop", url], check=True)


@pytest.fixture(scope="session")
def empty_databases(postgres_url: str) -> Iterator[list[str]]:
    """Databases that tests of this process used and emptied: to make one costs more CPU than most tests."""
    names: list[str] = []
    yield names
    with psycopg.connect(postgres_url, autocommit=True) as server:
        for name in names:
            server.execute(f"drop database {name} with (force)")


@pytest.fixture
def postgres_database(postgres_url: str, empty_databases: list[str]) -> Iterator[str]:
    """The URL of an empty database that this test alone uses.

    It is emptied after the test for another one, or dropped if anybody is still connected.
    """
    with psycopg.connect(postgres_url, autocommit=True) as server:
        name = empty_databases.pop() if empty_databases else create_database(server)
        url = urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
        yield url
        if is_in_use(server, name):
            server.execute(f"drop database {name} with (force)")
            return
    with psycopg.connect(url, autocommit=True) as own:
        own.execute("drop schema public cascade")
        own.execute("create schema public")
    empty_databases.append(name)


@pytest.fixture
def new_postgres_database(postgres_url: str) -> Iterator[str]:
    """The URL of a database that no other test has used: its files hold nothing of others either."""
    with psycopg.connect(postgres_url, autocommit=True) as server:
        name = create_database(server)
        yield urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
        server.execute(f"drop database {name} with (force)")


def create_database(server: psycopg.Connection) -> str:
    name = f"lcb_{uuid.uuid4().hex}"
    server.execute(f"create database {name} template template0")
    return name


def is_in_use(server: psycopg.Connection, name: str) -> bool:
    """Whether clients stay connected to a database: those that have just left are seen for some milliseconds more."""
    clients = "select from pg_stat_activity where datname = %s and backend_type = 'client backend'"
    for _ in range(20):
        if server.execute(clients, [name]).fetchone() is None:
            return False
        time.sleep(0.01)
    return True
