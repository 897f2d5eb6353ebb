"""A proxy to a PostgreSQL server that drops the connection after a statement, before the client gets the answer."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_RECEIVE_BYTES = 65536
_ANSWER_S = 1.0


class Proxy:
    """Forwards bytes between a client and the server, and drops the first connection that sends the statement."""

    def __init__(self, server: Path, socket_path: Path, statement: bytes) -> None:
        self.drops = 0
        self.ends_after_drop = False
        self._server, self._statement = str(server), statement
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(socket_path))
        self._listener.listen()
        self._ended = False

    def serve(self) -> None:
        """Serve one client after the other."""
        while not self._ended:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
                server.connect(self._server)
                self._forward(client, server)
        self._listener.close()

    def close(self) -> None:
        self._ended = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        while not self._ended:
            for source in select.select([client, server], [], [], 0.1)[0]:
                data = source.recv(_RECEIVE_BYTES)
                if not data:
                    return
                (server if source is client else client).sendall(data)
                if source is client and self._statement in data and not self.drops:
                    # The answer shows that the server has executed the statement. In the middle of a batch none comes.
                    select.select([server], [], [], _ANSWER_S)
                    self.drops += 1
                    self._ended = self.ends_after_drop
                    return


@contextmanager
def dropping_after(statement: bytes, server: Path, folder: Path) -> Iterator[Proxy]:
    """A proxy with a socket in this folder, under the name that a client of PostgreSQL expects."""
    proxy = Proxy(server, folder / ".s.PGSQL.5432", statement)
    thread = threading.Thread(target=proxy.serve)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
