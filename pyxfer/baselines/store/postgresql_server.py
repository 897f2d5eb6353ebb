"""A store on a PostgreSQL server: connections that end when the network does, and ask for nothing a pooler lacks."""

from __future__ import annotations

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import URL

from pyxfer.errors import StoreError

_CONNECT_S = 10
_SILENT_MS = 30_000
LOCK_MS = 30_000
# libpq's names; the URL may say otherwise.
_DEFAULTS = {
    "connect_timeout": str(_CONNECT_S),
    "application_name": "pyxfer",
    "client_encoding": "utf8",  # else a database in SQL_ASCII hands out bytes
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": str(_SILENT_MS),
}


def engine_of(url: URL) -> Engine:
    """Connections to the server, each tried before it is used again."""
    chosen = {name: value for name, value in _DEFAULTS.items() if name not in url.query}
    try:
        return create_engine(
            url,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={**chosen, "prepare_threshold": None},  # a pooler hands out another connection each time
        )
    except ImportError as error:
        raise StoreError(f"a store on PostgreSQL needs psycopg ({error}): pip install 'pyxfer[postgresql]'") from error
