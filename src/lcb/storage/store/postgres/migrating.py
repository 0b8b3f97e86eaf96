"""Creates the tables of a store in a PostgreSQL database, or brings those of an earlier version up to date."""

from __future__ import annotations

from lcb.errors import StoreError
from lcb.storage.store.migrate import log_upgrade, missing_migrations
from lcb.storage.store.postgres.connections import Address, Connection, Error, find_damage, lock_number, read_one

_SECONDS = 600


def migrate(address: Address, *, create: bool) -> None:
    """Run the migrations that the database does not have, in one transaction; without `create`, it must have some."""
    connection = address.connect()
    connection.limit = _SECONDS
    try:
        connection.execute("begin isolation level read committed")
        for name, value in (("statement_timeout", "0"), ("lock_timeout", f"{_SECONDS}s")):
            connection.execute("select set_config(%s, %s, true)", (name, value))
        connection.execute("select pg_advisory_xact_lock(%s)", (lock_number("migrate"),))
        version = _read_version(connection, address.shown)
        if version == 0 and not create:
            raise StoreError(
                f"{address.shown} has no tables of lcb; give the database of a service, or start one: lcb serve"
            )
        todo = missing_migrations("postgres", address.shown, version)
        for number, text in todo:
            connection.execute(text)
            connection.execute("insert into lcb_schema values(%s)", (number,))
        connection.execute("commit")
        log_upgrade(address.shown, version, todo)
        if (damage := find_damage(connection)) is not None:
            raise address.damaged_error(damage)
    except Error as error:
        raise address.store_error(error) from None
    finally:
        connection.close()


def _read_version(connection: Connection, url: str) -> int:
    asked = (
        "select current_setting('server_encoding'), to_regclass('lcb_schema')::text, current_schema(), "
        "current_setting('search_path')"
    )
    encoding, ours, schema, path = read_one(connection, asked)
    if encoding != "UTF8":
        raise StoreError(f"{url} is in {encoding}; make the database with encoding UTF8")
    if schema is None:
        raise StoreError(
            f"{url}: its search_path ({path or 'empty'}) names no schema that exists and that its user may use; set "
            "search_path of the role or the database to one that does: alter role ROLE set search_path = public"
        )
    if ours is not None:
        return int(read_one(connection, "select coalesce(max(version), 0) from lcb_schema")[0])
    there = read_one(
        connection,
        "select min(relname) from pg_class where relnamespace = current_schema()::regnamespace "
        "and relkind in ('r', 'p') and not exists (select from pg_depend where objid = pg_class.oid "
        "and classid = 'pg_class'::regclass and deptype = 'e')",
    )[0]
    if there is not None:
        raise StoreError(f"{url} holds other tables ({there}); give an empty database")
    return 0
