"""A temporary PostgreSQL server on a unix socket, run by a user that is not root."""

from __future__ import annotations

import getpass
import itertools
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import psycopg

PASSWORD = "quite secret/@:"
_START_S = 30.0
_SYSTEM_FOLDERS = "/usr/lib/postgresql"


def find_programs() -> Path | None:
    """The folder with `initdb` and `postgres`: on the PATH, or the one of Debian."""
    found = shutil.which("initdb")
    if found and shutil.which("postgres"):
        return Path(found).parent
    folders = sorted(Path(_SYSTEM_FOLDERS).glob("*/bin"), key=lambda folder: float(folder.parent.name))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


class Server:
    """A server that can be killed and started again. It ends with this process."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="pyxfer-pg-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        if os.geteuid() == 0:
            user = _unprivileged()
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        self._make()
        self.start()

    def start(self) -> None:
        deadline = time.monotonic() + _START_S
        while not self._answers():
            # After a kill its last child may still hold the shared memory. Then it exits, and is started again.
            if self._process is None or self._process.poll() is not None:
                self._process = self._launch()
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        """End it like a crash."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop_at_once(self) -> None:
        """End it by an immediate shutdown."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def close(self) -> None:
        self.stop_at_once()
        shutil.rmtree(self._folder, ignore_errors=True)

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{next(self._numbers)}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop(self, url: str) -> None:
        with self.connect() as connection:
            connection.execute(f"DROP DATABASE {name_of(url)} WITH (FORCE)")

    @property
    def socket(self) -> Path:
        return self._folder / ".s.PGSQL.5432"

    def url(self, database: str, user: str = "pyxfer", password: str = PASSWORD, folder: Path | None = None) -> str:
        where = quote(str(folder or self._folder), safe="")
        return f"postgresql+psycopg://{user}:{quote(password, safe='')}@/{database}?host={where}"

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """A connection without pyxfer."""
        return psycopg.connect(
            host=str(self._folder), user="pyxfer", password=PASSWORD, dbname=database, autocommit=True
        )

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _make(self) -> None:
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        command = [
            *(str(self._programs / "initdb"), "--no-sync", "--username=pyxfer", "--encoding=UTF8", "--no-locale"),
            *("--auth=scram-sha-256", f"--pwfile={password}", f"--pgdata={self._folder / 'data'}"),
        ]
        made = subprocess.run(self._as_user(command), capture_output=True, text=True, check=False, cwd="/")
        assert made.returncode == 0, made.stderr

    def _launch(self) -> subprocess.Popen[bytes]:
        # A test kills the server and not the machine, so the server need not wait for the disk.
        settings = ("listen_addresses=", f"unix_socket_directories={self._folder}", "fsync=off", "max_connections=80")
        command = [str(self._programs / "postgres"), "-D", str(self._folder / "data")]
        command += [part for setting in settings for part in ("-c", setting)]
        with open(self._folder / "log", "ab") as log:
            return subprocess.Popen(self._as_user(command), stdout=log, stderr=log, cwd="/")

    def _as_user(self, command: list[str]) -> list[str]:
        """The command under a user that is not root, which PostgreSQL refuses; it ends with this process."""
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            return command
        user = _unprivileged() if os.geteuid() == 0 else pwd.getpwnam(getpass.getuser())
        ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups") if os.geteuid() == 0 else ()
        return [setpriv, *ids, "--pdeathsig=QUIT", *command]


def name_of(url: str) -> str:
    return url.rpartition("/")[2].partition("?")[0]


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("this system has neither a user postgres nor nobody")


# --- a connection that is lost ---------------------------------------------------------------------------------------


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
