"""Which addresses of a store are refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from lcb.errors import StoreError
from lcb.storage.store.open_store import open_store


@pytest.mark.parametrize(
    "given",
    [
        "host=127.0.0.1 port=1 password=SECRETPW",
        "password=SECRETPW",
        "password='SECRET/PW'",
        "  password = SECRETPW\thost = db",
        "hots=db password=SECRETPW",
        "dbname=lcb",
        "HOST=/run/postgresql",
        "user=ann host=/run/postgresql",
        "sslmode=require dbname=lcb",
    ],
)
def test_a_connection_string_of_keywords_and_values_is_refused_and_no_file_is_made(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as told:
        open_store(given)
    assert "give postgresql://user@host/name" in str(told.value)
    assert "SECRET" not in str(told.value)
    assert "\n" not in str(told.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["runs/a=1/lcb.db", "user=ann/lcb.db", "a=1.db", "my lcb=2 x=3.db", "./host=db"])
def test_a_path_with_an_equals_sign_names_a_file(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    Path(given).parent.mkdir(parents=True, exist_ok=True)
    open_store(given).close()
    assert Path(given).is_file()
