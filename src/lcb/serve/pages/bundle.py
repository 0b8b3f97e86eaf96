"""Vega, Vega-Lite and Vega-Embed for the browser, out of the package that also draws the PNGs.

A JavaScript module of 0.9 MB (0.3 MB compressed) that exports `vegaEmbed`; it holds the interpreter of Vega's
expressions, so that `vegaEmbed(el, spec, {ast: true})` draws under a policy without unsafe-eval.
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
_MAKING = threading.Lock()
_WRITE = """
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle(sys.argv[1], vl_version=sys.argv[2]).encode())
"""


@dataclass(frozen=True)
class Bundle:
    """The module, whole and gzipped, and a tag that changes with it."""

    script: bytes
    gzipped: bytes
    etag: str


def bundle() -> Bundle:
    """The module, made at the first call (about 2 s) and kept (1.2 MB); others wait for it.

    Another process makes it: the engine that does so takes 90 MB, which go when that process ends.
    """
    with _MAKING:
        return _made()


@functools.cache
def _made() -> Bundle:
    alt = style.load_altair()
    if importlib.util.find_spec("vl_convert") is None:
        raise MissingExtra("vl-convert-python", "plots")
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    command = [sys.executable, "-I", "-c", _WRITE, _SNIPPET, version]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode or not made.stdout.rstrip().endswith(b"as vegaEmbed};"):
        why = made.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it ended without one"]
        raise LCBError(f"vl-convert made no module of Vega-Lite {version}: {why[0]}; install lcb[plots] anew")
    digest = hashlib.sha256(made.stdout).hexdigest()
    return Bundle(made.stdout, gzip.compress(made.stdout, mtime=0), f'"{digest[:20]}"')
