"""A public data set: what it is called, where to get it, and how its files become a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lcb.errors import InputError
from lcb.storage.importing.source import Source


@dataclass(frozen=True)
class Dataset:
    """A data set that the user has downloaded; lcb downloads nothing."""

    name: str
    title: str
    where: str  # the address to get it from
    licence: str
    files: str  # names of the files in its folder
    reading: str  # what an event, a reward and a category are, in a sentence
    is_in: Callable[[Path], bool]
    source: Callable[[Path, str], Source]  # (folder, part) -> the log
    parts: tuple[str, ...] = ()  # values of --part; the first is the default

    def open(self, folder: Path, part: str | None = None) -> Source:
        """Return the source of the log in `folder`."""
        if part is not None and part not in self.parts:
            wanted = f"give one of {', '.join(self.parts)}" if self.parts else "leave it out"
            raise InputError(f"--part {part}, but {self.title} has no such part; {wanted}")
        if not self.is_in(folder):
            raise InputError(f"{folder} is not {self.title}, which has {self.files}; get it from {self.where}")
        return self.source(folder, part or (self.parts[0] if self.parts else ""))
