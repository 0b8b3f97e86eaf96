"""Open the store of a service by its address."""

from __future__ import annotations

import re

from lcb.errors import StoreError
from lcb.storage.store.base import Store

_KEYWORD = (  # of connection strings of PostgreSQL
    r"(?:host|hostaddr|port|dbname|user|password|passfile|service|options|application_name|connect_timeout|"
    r"client_encoding|target_session_attrs|ssl\w+|gss\w+)\s*="
)
_SEVERAL = re.compile(rf"\s*\w+\s*=.*\s{_KEYWORD}", re.IGNORECASE | re.DOTALL)
_ONE = re.compile(rf"\s*(?:password\s*=|{_KEYWORD}\s*/|{_KEYWORD}[^/]*$)", re.IGNORECASE)  # user=ann/lcb.db is a path


def open_store(url: str, *, create: bool = True, serve: bool = False) -> Store:
    """Open the SQLite file at a path, or the PostgreSQL database at a postgresql:// address.

    `serve` takes the lock that lets one process serve an SQLite file, and refuses a schema that lcb did not make,
    and indexes that lack events.  What erasures left in files because their process was ended is removed.
    """
    store = _open(url, create, serve)
    changes = store.find_changes_of_schema() if serve else []
    if changes:
        store.close()
        raise StoreError(
            f"{store.url}: {'; '.join(changes)}; the schema decides what is stored, so it must be the one that lcb "
            "made: undo this, run lcb log verify, then serve"
        )
    if serve and (words := store.find_unindexed()):
        store.close()
        raise StoreError(
            f"{store.url}: {words}, so that the service would not see it: make the indexes anew "
            f"(sqlite3 {store.url} reindex), run lcb log verify, then serve"
        )
    return store


def _open(url: str, create: bool, serve: bool) -> Store:
    if url.startswith(("postgresql://", "postgres://")):
        from lcb.storage.store.postgres.store import Postgres

        store = Postgres(url, create=create)
        if serve:
            store.finish_erasures()
        return store
    if _SEVERAL.match(url) or _ONE.match(url):  # as the name of a file it would put a password on the disk
        raise StoreError(
            "the store is KEYWORD=VALUE, as psql takes it, which is neither the path of a file nor a URL; give "
            "postgresql://user@host/name, or ./ before the path of a file"
        )
    if "://" in url:
        raise StoreError(f"store {url.split('://')[0]}://...; give the path of a file, or postgresql://user@host/name")
    from lcb.storage.store.sqlite.store import SQLite

    return SQLite(url, create=create, serve=serve)
