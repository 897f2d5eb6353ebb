"""Runs and baselines in a database: SQLite for a user, PostgreSQL for many hosts."""

from .store import Store, open_store

__all__ = ["Store", "open_store"]
