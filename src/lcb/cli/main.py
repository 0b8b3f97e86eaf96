"""The entry point of `lcb`: run a command, print an error as one line, exit with its code.

It imports the commands itself, so that Ctrl-C is handled while they load.
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
    """Run a command.  An LCBError is printed as one line with exit code 2, Ctrl-C as one line with exit code 130."""
    try:
        _open_output()
        from lcb.cli.app import run

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except LCBError as error:
        _leave(f"lcb: {error}", 2)
    except KeyboardInterrupt:
        _leave("lcb: interrupted; nothing half-written is left behind", 130)
    except BrokenPipeError:  # the program that reads the output has ended
        _close_output()
        sys.exit(141)
    except OSError as error:  # of standard output: other files raise LCBError
        if error.errno not in _NO_ROOM:
            raise
        _close_output()
        _leave(f"lcb: standard output could not be written ({error.strerror}); free space, or redirect it", 2)
    sys.exit(code)


def _open_output() -> None:
    """Escape characters that the output cannot encode; discard output if standard output is closed."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _close_output() -> None:
    """Discard what is still to be flushed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(line: str, code: int) -> None:
    with suppress(OSError):
        sys.stdout.flush()
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    sys.exit(code)
