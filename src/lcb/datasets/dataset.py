"""What is known of a public data set, and how its files as downloaded become a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lcb.errors import InputError
from lcb.storage.importing.source import Source


@dataclass(frozen=True)
class Dataset:
    """A set that users have on disk; nothing is ever downloaded."""

    name: str
    title: str
    where: str  # to get it
    licence: str
    files: str  # by which a folder is told to hold it
    reading: str  # what an event is, and what the categories are
    is_in: Callable[[Path], bool]
    source: Callable[[Path, str], Source]  # (folder, part) -> the log
    parts: tuple[str, ...] = ()  # what can be asked for with --part; the first is the default

    def open(self, folder: Path, part: str | None = None) -> Source:
        """The log of the set in `folder`."""
        if part is not None and part not in self.parts:
            wanted = f"give one of {', '.join(self.parts)}" if self.parts else "leave it out"
            raise InputError(f"--part {part} is no part of {self.title}; {wanted}")
        if not self.is_in(folder):
            raise InputError(f"{folder} holds no {self.title}: {self.files} are wanted; get it from {self.where}")
        return self.source(folder, part or (self.parts[0] if self.parts else ""))
