"""Builds Vega, Vega-Lite and Vega-Embed as one JavaScript module with vl-convert, which also renders PNG charts.

The module is 0.9 MB large (0.3 MB compressed) and exports `vegaEmbed`.  It includes the interpreter of Vega's
expressions, so `vegaEmbed(el, spec, {ast: true})` works under a Content-Security-Policy without unsafe-eval.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.util
import subprocess
import sys
import threading
from dataclasses import dataclass

from lcb.charts.style import theme as style
from lcb.errors import LCBError, MissingExtra

_SNIPPET = "export { vegaEmbed };"
_BUILDING = threading.Lock()
_WRITE = """
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle(sys.argv[1], vl_version=sys.argv[2]).encode())
"""


@dataclass(frozen=True)
class Bundle:
    """The module, plain and gzipped, and its ETag."""

    script: bytes
    gzipped: bytes
    etag: str


def load_bundle() -> Bundle:
    """Return the module; the first call builds it (about 2 s) and keeps it (1.2 MB), other callers wait.

    It is built in another process, because the engine needs 90 MB, which are freed when the process ends.
    """
    with _BUILDING:
        return _build()


@functools.cache
def _build() -> Bundle:
    alt = style.load_altair()
    if importlib.util.find_spec("vl_convert") is None:
        raise MissingExtra("vl-convert-python", "plots")
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    command = [sys.executable, "-I", "-c", _WRITE, _SNIPPET, version]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode or not made.stdout.rstrip().endswith(b"as vegaEmbed};"):
        why = made.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it ended without a message"]
        raise LCBError(f"vl-convert did not build the module of Vega-Lite {version}: {why[0]}; reinstall lcb[plots]")
    digest = hashlib.sha256(made.stdout).hexdigest()
    return Bundle(made.stdout, gzip.compress(made.stdout, mtime=0), f'"{digest[:20]}"')
