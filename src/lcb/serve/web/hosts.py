"""The host names by which requests may address the service.

A page of another site can turn its own host name to this machine (DNS rebinding); the browser then lets it read the
answers.  Such requests carry that name in `Host`, and are refused.
"""

from __future__ import annotations

import re

from lcb.serve.config.settings import Settings, is_loopback
from lcb.serve.errors import Problem

_MOST = 1000  # headers remembered
_HOST = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]+))(?::\d*)?")


class Hosts:
    """The allowed names: those of the setting `hosts` and of this machine.

    Without the setting, a service that other machines can reach allows any name; it has keys.

    >>> hosts = Hosts(Settings())
    >>> hosts.check(b"localhost:8000")
    >>> hosts.check(b"evil.example")
    Traceback (most recent call last):
    lcb.serve.errors.Problem: host 'evil.example' is not a name of this service; ask for localhost, or add the name ...
    """

    def __init__(self, settings: Settings) -> None:
        self.known: set[bytes] = set()  # headers that were allowed before
        names = settings.hosts if settings.hosts is not None else () if is_loopback(settings.host) else ("*",)
        self._names = {name.lower() for name in names}

    def check(self, header: bytes) -> None:
        """Problem 421 if a Host header has a name that is not allowed."""
        found = _HOST.fullmatch(header.decode("latin-1").lower())
        name = "" if found is None else found[1] or found[2] or ""
        if not (name in self._names or "*" in self._names or is_loopback(name)):
            shown = header.decode("latin-1")[:200]
            remedy = "ask for localhost, or add the name to the setting hosts"
            raise Problem(421, f"host {shown!r} is not a name of this service; {remedy}", field="Host")
        if len(self.known) < _MOST:
            self.known.add(header)
