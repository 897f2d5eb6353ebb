"""How much memory an uploader may have, as its arguments say it."""

from __future__ import annotations

from pyxfer.errors import UsageError
from pyxfer.units import parse_size

_NONE = ("0", "0B")


def budget_bytes(budget: str | int) -> int:
    """Page-locked memory, at most.

    Raises:
        UsageError: it is no size.

    """
    found = _size("budget", budget) if isinstance(budget, str) else budget
    if type(found) is not int:
        raise UsageError(f"a budget is a number of bytes, such as '256MiB', and not {budget!r:.40}")
    return found


def pool_bytes(pool: str | int | None) -> int | None:
    """The device's memory that is kept for later arrays; None leaves it to the pool.

    Raises:
        UsageError: it is no size, nor none.

    """
    if isinstance(pool, str):
        return 0 if pool.replace(" ", "") in _NONE else _size("pool", pool)
    if pool is not None and (type(pool) is not int or pool < 0):
        raise UsageError(f"a pool keeps 0 bytes or more, such as '1GiB', and not {pool!r:.40}")
    return pool


def _size(name: str, text: str) -> int:
    try:
        return parse_size(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
