"""The entry point of `lcb`: run a command, print an error as one line, exit with its code.

It imports the commands itself, so that Ctrl-C is handled while they load.  SIGTERM and SIGHUP end a command as Ctrl-C
does: it removes what it has half written.  A service handles SIGTERM itself.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from lcb.errors import LCBError

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def main() -> None:
    """Run a command.  An LCBError is one line and exit code 2; a signal is one line and exit code 128 + its number."""
    try:
        for one in _SIGNALS:
            if signal.getsignal(one) is signal.SIG_DFL:  # nohup ignores SIGHUP
                signal.signal(one, _interrupt)
        _open_output()
        from lcb.cli.app import run

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except LCBError as error:
        _leave(f"lcb: {error}", 2)
    except KeyboardInterrupt as error:
        number = error.args[0] if error.args else signal.SIGINT
        _leave("lcb: interrupted; nothing half-written is left behind", 128 + number)
    except BrokenPipeError:  # the program that reads the output has ended
        _close_output()
        sys.exit(141)
    except OSError as error:  # of standard output: other files raise LCBError
        if error.errno not in _NO_ROOM:
            raise
        _close_output()
        _leave(f"lcb: standard output could not be written ({error.strerror}); free space, or redirect it", 2)
    sys.exit(code)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt(number)


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
