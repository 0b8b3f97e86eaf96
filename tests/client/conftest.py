from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.harness import Server, models_folder, serving


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running service with classes of 6 features."""
    folder: Path = tmp_path_factory.mktemp("service")
    with serving(folder, models=models_folder(folder)) as server:
        yield server
