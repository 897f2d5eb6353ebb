"""A way to a PostgreSQL server that drops the connection just after a statement went through, and eats its answer."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ENOUGH = 65536
_ANSWER_S = 1.0


class Way:
    """Passes bytes on between a client and the server until it sees the statement, as often as it is told to."""

    def __init__(self, server: Path, listening: Path, statement: bytes, times: int) -> None:
        self.drops = 0
        self.gone_after_drop = False
        self._server, self._statement, self._left = str(server), statement, times
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(listening))
        self._listener.listen()
        self._ended = False

    def serve(self) -> None:
        """One client after the other."""
        while not self._ended:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
                server.connect(self._server)
                self._pass_on(client, server)
        self._listener.close()

    def close(self) -> None:
        """No client any more."""
        self._ended = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        while not self._ended:
            for source in select.select([client, server], [], [], 0.1)[0]:
                data = source.recv(_ENOUGH)
                if not data:
                    return
                (server if source is client else client).sendall(data)
                if source is client and self._statement in data and self._left > 0:
                    # An answer says that it has done what it was told; in the middle of a batch there is none.
                    select.select([server], [], [], _ANSWER_S)
                    self._left -= 1
                    self.drops += 1
                    self._ended = self.gone_after_drop
                    return


@contextmanager
def dropping_after(statement: bytes, server: Path, folder: Path, times: int = 1) -> Iterator[Way]:
    """A folder in which a socket leads to the server over such a way."""
    way = Way(server, folder / ".s.PGSQL.5432", statement, times)
    thread = threading.Thread(target=way.serve)
    thread.start()
    try:
        yield way
    finally:
        way.close()
        thread.join()
