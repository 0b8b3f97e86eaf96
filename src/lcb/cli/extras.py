"""Commands that need packages of an extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lcb.errors import MissingExtra


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around imports: a package that is not there becomes the line that installs it; a module of ours is our fault."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in ("", "lcb"):
            raise
        raise MissingExtra(package, name) from None
