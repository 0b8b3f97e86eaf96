"""The static files of the pages, read once and served with security headers and an ETag."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

from lcb.serve.errors import Problem
from lcb.serve.pages.palette import generate_files
from lcb.serve.pages.security import SECURITY_HEADERS
from lcb.serve.web.endpoint import Ask, Reply

_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_FOLDER = files("lcb.serve.pages")


def read_static(name: str) -> bytes:
    """Return a file of `static/`; a line `<!-- include NAME -->` is replaced by the file NAME of `parts/`."""
    body = (_FOLDER / "static" / name).read_bytes()
    return re.sub(
        rb" *<!-- include (\S+) -->\n", lambda found: (_FOLDER / "parts" / found[1].decode()).read_bytes(), body
    )


class Files:
    """The files of `static/` and the files generated at the start, by name."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[bytes, bytes, bytes]] = {}
        for file in (_FOLDER / "static").iterdir():
            if file.name.rpartition(".")[2] in _TYPES:
                self.add(file.name, read_static(file.name))
        for name, text in generate_files().items():
            self.add(name, text.encode())

    def add(self, name: str, body: bytes) -> None:
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'.encode()
        self._kept[name] = (body, _TYPES[name.rpartition(".")[2]], tag)

    def reply(self, name: str, ask: Ask) -> Reply:
        """Return the file, or 304 if the browser has it already."""
        found = self._kept.get(name)
        if found is None:
            raise Problem(404, f"no file {name[:100]!r}; check the address")
        body, kind, tag = found
        headers = [*SECURITY_HEADERS, (b"etag", tag)]
        if ask.header(b"if-none-match") == tag:
            return Reply(b"", 304, kind, headers, cache=b"no-cache")
        return Reply(body, 200, kind, headers, cache=b"no-cache")
