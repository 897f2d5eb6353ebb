"""Values that a shell offers for options and arguments. It shows nothing where they cannot be found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import get_args

from pyxfer.errors import PyxferError

Complete = Callable[[str], list[str]]
Values = Callable[[], Iterable[str]]


def one_of(values: Values) -> Complete:
    return lambda incomplete: [value for value in _found(values) if value.startswith(incomplete)]


def some_of(values: Values) -> Complete:
    """Complete the last item of a comma-separated list."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        used = before.split(",")
        fitting = (value for value in _found(values) if value.startswith(last) and value not in used)
        return [f"{before}{comma}{value}" for value in fitting]

    return complete


def _found(values: Values) -> Iterable[str]:
    with suppress(PyxferError, OSError):
        return [value for value in values() if value.isprintable()]
    return ()


def charts() -> Iterable[str]:
    from pyxfer._report.kinds import CHARTS

    return CHARTS


def directions() -> Iterable[str]:
    from pyxfer._ceiling.ways import DIRECTIONS

    return DIRECTIONS


def one_way() -> Iterable[str]:
    return ("h2d", "d2h")


def memories() -> Iterable[str]:
    from pyxfer._ceiling.ways import MEMORIES

    return MEMORIES


def modes() -> Iterable[str]:
    from pyxfer._ceiling.ways import AUTO, SHOWN_MODES

    return (AUTO, *SHOWN_MODES)


def devices() -> Iterable[str]:
    """Indexes first: they are short, and most hosts have few."""
    import pyxfer

    gpus = [device for device in pyxfer.devices() if device.runtime == "cuda"]
    facts = [fact for device in gpus for fact in (device.uuid, device.pci)]
    return (*(str(device.index) for device in gpus), *(fact.value for fact in facts if fact.value), "host")


def link_groups() -> Iterable[str]:
    from pyxfer._document.links import GROUPS

    return GROUPS


def copy_engines() -> Iterable[str]:
    from pyxfer._document.links import COPY_ENGINES

    return COPY_ENGINES


def frameworks() -> Iterable[str]:
    from pyxfer._frameworks.registry import FRAMEWORKS

    return FRAMEWORKS


def workloads() -> Iterable[str]:
    from pyxfer._document.runs import Workload

    return get_args(Workload)


def routes() -> Iterable[str]:
    import pyxfer

    return [route.name for route in pyxfer.list_routes()]


def framework_routes() -> Iterable[str]:
    names = [name for name in routes() if not name.startswith("raw.")]
    return (*dict.fromkeys(f"{name.partition('.')[0]}.*" for name in names), *names)


def kinds() -> Iterable[str]:
    from pyxfer._document.codec import KINDS

    return [kind.name for kind in KINDS]


def sorts() -> Iterable[str]:
    from pyxfer._report.rates import SORTS

    return SORTS


def baselines() -> Iterable[str]:
    from pyxfer._baseline.store import open_store

    with open_store(None, create=False) as store:
        return list(dict.fromkeys(kept.name for kept in store.baselines()))


def measured() -> Iterable[str]:
    """Baselines as `pyxfer compare` takes them; for anything else the shell completes file names."""
    return [f"baseline:{name}" for name in baselines()]
