"""How much a connection reads at once: a small piece, so that what waits for its turn takes little memory.

uvloop hands over up to 256 kB of a connection at once, and reads it up to 32 times before it looks at others.  A
piece is parsed, or waits in a line while its connection reads nothing more (`lcb.serve.web.wire.lines`).
"""

from __future__ import annotations

import asyncio

PIECE = 16_384  # bytes
_BUFFER = memoryview(bytearray(PIECE))  # for all connections: a piece is taken before the next is read


class PieceReader(asyncio.BufferedProtocol):
    """Stands between a transport and its protocol, and passes on what comes in pieces."""

    __slots__ = ("_data_received", "_protocol", "connection_lost", "pause_writing", "resume_writing")

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol, self._data_received = protocol, protocol.data_received
        self.connection_lost = protocol.connection_lost  # type: ignore[method-assign]
        self.pause_writing, self.resume_writing = protocol.pause_writing, protocol.resume_writing  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self._data_received(bytes(_BUFFER[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()
