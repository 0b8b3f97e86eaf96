"""What several drills start from."""

from __future__ import annotations

import pytest

from lcb.storage.store.base import Row
from support.sessions import run_session


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The events of a short scripted session."""
    with run_session(tmp_path_factory.mktemp("session") / "lcb.db", n=40, erase=False) as inside:
        return list(inside.store.events(0))
