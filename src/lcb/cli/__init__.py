"""The command line: parse, call one library function, print.

`main` is the door and loads the commands itself, so that Ctrl-C has its answer from the first moment.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress

from lcb.errors import LCBError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def main() -> None:
    """Run a command: an error we raised on purpose is one line and exit code 2, Ctrl-C is one line and 130."""
    try:
        _open_output()
        from lcb.cli.app import run

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except LCBError as error:
        _leave(f"lcb: {error}", 2)
    except KeyboardInterrupt:
        _leave("lcb: interrupted; nothing half-written is left behind", 130)
    except BrokenPipeError:  # the reader of our output has left: so do we, without a word
        _close_output()
        sys.exit(141)
    except OSError as error:  # of files and folders we speak as LCBError: this is standard output
        if error.errno not in _NO_ROOM:
            raise
        _close_output()
        _leave(f"lcb: the output could not be written ({error.strerror}); make room, or send it elsewhere", 2)
    sys.exit(code)


def _open_output() -> None:
    """Let no character of a name be unprintable, and no command fail because nobody listens."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _close_output() -> None:
    """Send what is still to be flushed nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(line: str, code: int) -> None:
    with suppress(OSError):
        sys.stdout.flush()
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    sys.exit(code)
