"""From a place to a database: checked to be a store that this pyxfer knows, made or brought up to date if need be."""

from __future__ import annotations

from pyxfer.errors import StoreError

from . import migrations
from .database import Database
from .postgresql_server import engine_of
from .sqlite_files import SqliteFile
from .urls import Place


def open_database(place: Place, *, create: bool) -> Database:
    """The store at a place.

    Raises:
        StoreError: it is none, cannot be reached, or comes from a later pyxfer; or it is not there and is not to be.

    """
    file = None if place.path is None else _file(place, create)
    if file is not None:
        engine = file.engine()
    elif place.url is not None:
        engine = engine_of(place.url)
    else:
        raise AssertionError("a place is a file or a URL")
    database = Database(place, engine, file)
    try:
        _bring_up_to_date(database, create)
    except BaseException:
        database.close()
        raise
    return database


def _file(place: Place, create: bool) -> SqliteFile:
    file = SqliteFile(place)
    if not file.exists():
        if not create:
            raise _missing(place)
        file.create()
    return file


def _bring_up_to_date(database: Database, create: bool) -> None:
    version = database.read(migrations.version_of, patiently=False)
    migrations.check_version(version, database.place.shown)
    if version == 0 and not create:
        raise _missing(database.place)
    if version < migrations.NEWEST:
        database.migrate(version)
    if database.file is not None and database.file.may_write:
        database.file.choose_journal(database.engine)


def _missing(place: Place) -> StoreError:
    return StoreError(
        f"there is no store at {place.shown} yet: the first pyxfer baseline save makes it; name another with --store"
    )
