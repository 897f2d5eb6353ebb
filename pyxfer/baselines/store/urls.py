"""Where a store is: an option, a variable, or a file of this user's; and how it is named without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from pyxfer.errors import StoreError, UsageError

VARIABLE = "PYXFER_STORE"
_NAME = "store.db"
_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_LIKE_A_SERVER = re.compile(r"\s*postgres.*(?:@|//)", re.ASCII | re.DOTALL | re.IGNORECASE)
_EXAMPLES = "name a file, sqlite:////path/store.db, or postgresql+psycopg://user@server/database"


@dataclass(frozen=True)
class Place:
    """A file, or the URL of a server; `shown` has no password. `own` is the file that nobody has named."""

    shown: str
    path: Path | None = None
    url: URL | None = None
    own: bool = False


def find_place(given: str | os.PathLike[str] | None, environ: Mapping[str, str] = os.environ) -> Place:
    """Where the store is: as given, else as `PYXFER_STORE` says, else in the user's data directory."""
    if given is not None:
        return _named(_text_of(given), "the store")
    if environ.get(VARIABLE):
        return _named(environ[VARIABLE], f"the store that {VARIABLE} names")
    path = _data_folder(environ) / "pyxfer" / _NAME
    return Place(repr(str(path)), path, own=True)


def _data_folder(environ: Mapping[str, str]) -> Path:
    shared = Path(environ.get("XDG_DATA_HOME", ""))
    if shared.is_absolute():  # any other is to be ignored: XDG Base Directory Specification
        return shared
    try:
        return Path.home() / ".local" / "share"
    except RuntimeError:
        raise StoreError(f"this user has no home to keep a store in; name a file with --store or {VARIABLE}") from None


def _text_of(given: str | os.PathLike[str]) -> str:
    try:
        return os.fsdecode(given)
    except TypeError:
        raise UsageError(
            f"a store is named by text or a path, and not by {type(given).__name__}; {_EXAMPLES}"
        ) from None


def _named(text: str, what: str) -> Place:
    if not text.strip():
        raise UsageError(f"{what} is empty; {_EXAMPLES}")
    if "\0" in text:
        raise UsageError(f"{what} has a null character in its name; {_EXAMPLES}")
    scheme, url_like, _ = text.partition("://")
    if not url_like:
        return _file_at(text, what)
    # What cannot be read as a URL may hold a password all the same, so it is not shown.
    try:
        text.encode()
        url = make_url(text)
    except (ArgumentError, ValueError, UnicodeError):
        raise UsageError(f"{what} is no URL that can be read; {_EXAMPLES}") from None
    kind = scheme.lower()
    if kind in _SQLITE:
        return _file_of(url, what)
    if kind in _POSTGRESQL:
        _check_one_at(text, url, what)
        server = url.set(drivername="postgresql+psycopg")
        return Place(repr(server.render_as_string(hide_password=True)), url=_without_query_secrets(server, what))
    if kind.startswith("postgresql+"):
        raise UsageError(f"{what} names the driver {scheme!r:.60}; write postgresql+psycopg://, the one that is used")
    raise UsageError(f"{what} is of the kind {scheme!r:.60}, and there are SQLite and PostgreSQL; {_EXAMPLES}")


def _file_at(text: str, what: str) -> Place:
    """A file, unless it is a server's URL with a slip in it, whose password would be shown as a part of the path."""
    if _LIKE_A_SERVER.match(text):
        raise UsageError(f"{what}, 'postgresql...', is no URL that can be read; {_EXAMPLES}")
    return _file(text)


def _check_one_at(text: str, url: URL, what: str) -> None:
    """Refuse what leaves open where a password ends: the rest of it would be taken for a server, and shown."""
    count = text.count("@")
    if count > 1 or (count == 1 and url.username is None):
        raise UsageError(
            f"{what}, 'postgresql...', has an @ that is not the one in front of the server; write that of a user, a "
            "password or a name as %40, such as postgresql+psycopg://user:pass%40word@server/database"
        )


def _file_of(url: URL, what: str) -> Place:
    if not url.database or url.database == ":memory:":
        raise UsageError(f"{what} would be gone with this process; {_EXAMPLES}")
    if url.query or url.host or url.database.startswith("file:"):
        raise UsageError(f"{what} is more than a file; write its path alone, such as sqlite:////path/store.db")
    return _file(url.database)


def _file(text: str) -> Place:
    path = Path(os.path.abspath(os.path.expanduser(text)))
    return Place(repr(str(path)), path)


def _without_query_secrets(url: URL, what: str) -> URL:
    """Refuse a password where it would be shown; libpq takes one there, and nobody hides it."""
    if any("password" in name.lower() for name in url.query):
        raise UsageError(
            f"{what} has a password behind the question mark, where it would be shown; write "
            "postgresql+psycopg://user:password@server/database, or use a passfile (~/.pgpass)"
        )
    return url
