"""What a database reports, as a sentence: what happened, where, and what to do about it."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, IntegrityError

from .urls import Place

# SQLite by its own words, because Python 3.10 hands on no code.
_SQLITE = {
    "locked": "another program holds it locked; end that, or try again",
    "readonly": "it is read-only here; name a store that may be written to with --store",
    "read-only": "it is read-only here; name a store that may be written to with --store",
    "unable to open": "it cannot be opened; check the path and who may read and write it",
    "is full": "the disk is full; free some space, or name a store on another disk with --store",
    "disk i/o": "the disk refused to read or write; check its space, its limits (ulimit -f, quota) and its health",
    "not a database": "it is no SQLite database; name another file with --store",
    "malformed": "it is damaged; copy it, and what can be saved of it comes with: sqlite3 FILE .recover",
}
_SERVER = {
    "25006": "it is read-only, as a standby is; name the server that may be written to",
    "28000": "the server refused the user; check user and password",
    "28P01": "the server refused the password; check user and password, or the passfile (~/.pgpass)",
    "3D000": "the server has no such database; make it first, with: createdb NAME",
    "42501": "this user may not do that there; grant it, or name another user",
    "53100": "the server's disk is full; free some space there",
    "53300": "the server has no connection left; try again, or raise its max_connections",
    "55P03": "another program holds it locked; end that, or try again",
    "57014": "the server ended the statement; try again",
    "57P03": "the server is starting or stopping; try again",
    "XX001": "the server reports damaged data; restore it from a backup",
}
_AUTHENTICATION = {
    "password authentication failed": _SERVER["28P01"],
    "no password supplied": "the server wants a password; write it into the URL, or into the passfile (~/.pgpass)",
    "does not exist": "the server has no such database or user; make it first",
    "starting up": _SERVER["57P03"],
    "shutting down": _SERVER["57P03"],
    "invalid connection option": "the URL has an option that PostgreSQL does not know; leave it out",
    "too many clients": _SERVER["53300"],
    "remaining connection slots": _SERVER["53300"],
}
_UNREACHABLE = "the server cannot be reached; check that it runs, its name and port, and the network"
_GONE = "the server has dropped the connection; check that it runs, and try again"
_TO_TRY_AGAIN = {"40001", "40P01", "57P01", "57P02", "57P03"}
_LONGEST = 300


def explain(error: DBAPIError, place: Place) -> str:
    """What happened to the store at that place, and what to do."""
    words = _words(error)
    return f"the store {place.shown}: {_advice(error, words, place)} ({words})"


def may_pass(error: DBAPIError) -> bool:
    """Whether the same once more, on a new connection, may go well: a server that restarts, a deadlock, a drop."""
    if error.connection_invalidated or _state(error) in _TO_TRY_AGAIN:
        return True
    return _is_no_connection(error) and _in(_AUTHENTICATION, _words(error).lower()) in (None, _SERVER["57P03"])


def leaves_doubt(error: DBAPIError) -> bool:
    """Whether a commit that ended so may have been carried out."""
    return error.connection_invalidated or "disk i/o" in _words(error).lower()


def is_duplicate(error: DBAPIError) -> bool:
    """Whether a row with the same key is there already."""
    return isinstance(error, IntegrityError)


def _advice(error: DBAPIError, words: str, place: Place) -> str:
    if place.path is not None:
        return _in(_SQLITE, words.lower()) or "it cannot be used"
    known = _SERVER.get(_state(error) or "")
    if known:
        return known
    if _is_no_connection(error):
        return _in(_AUTHENTICATION, words.lower()) or _UNREACHABLE
    return _GONE if error.connection_invalidated else "the server refused"


def _is_no_connection(error: DBAPIError) -> bool:
    """Whether a server was not reached: only then there is no statement to tell, and no code."""
    if isinstance(error.orig, sqlite3.Error):
        return False
    return error.statement is None and _state(error) is None and not error.connection_invalidated


def _state(error: DBAPIError) -> str | None:
    state = getattr(error.orig, "sqlstate", None)
    return state if isinstance(state, str) else None


def _words(error: DBAPIError) -> str:
    """The driver's first lines without SQLAlchemy's, which would repeat what was to be stored."""
    return " ".join(str(error.orig).split())[:_LONGEST]


def _in(table: dict[str, str], words: str) -> str | None:
    return next((advice for part, advice in table.items() if part in words), None)
