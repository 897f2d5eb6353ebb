"""How a framework's import fails, in one sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyxfer.routes.base import RefusedError, first_line


@contextmanager
def importing(title: str, module: str, install: str) -> Iterator[None]:
    """Around an import: RefusedError where it is not installed, or is and does not work."""
    try:
        yield
    except (ImportError, OSError, RuntimeError) as error:  # jax and jaxlib that do not fit raise RuntimeError
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            raise RefusedError(f"{title} is not installed: {install}") from error
        # CuPy writes a page about its error, and raises it from the one that says which library is missing.
        why = first_line(error.__cause__ or error)
        raise RefusedError(f"{title} is installed and cannot be imported: {why}") from error
