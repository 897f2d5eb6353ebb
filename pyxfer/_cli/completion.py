"""Values that a shell offers for options and arguments. It shows nothing where they cannot be found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module

from pyxfer.errors import PyxferError

Complete = Callable[[str], list[str]]
Values = Callable[[], Iterable[str]]


def one_of(values: Values) -> Complete:
    return lambda incomplete: [value for value in _found(values) if value.startswith(incomplete)]


def some_of(values: Values) -> Complete:
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


def _named(module: str, name: str) -> Values:
    """The values of a constant, whose module is loaded only for a completion."""
    return lambda: getattr(import_module(f"pyxfer.{module}"), name)


charts = _named("_report.kinds", "CHARTS")
directions = _named("_ceiling.plans", "DIRECTIONS")
memories = _named("_ceiling.plans", "MEMORIES")
link_groups = _named("_document.links", "GROUPS")
copy_engines = _named("_document.links", "COPY_ENGINES")
frameworks = _named("_frameworks.registry", "FRAMEWORKS")
one_way = _named("_frameworks.session", "DIRECTIONS")
workloads = _named("_frameworks.session", "WORKLOADS")


def modes() -> Iterable[str]:
    from pyxfer._ceiling.plans import AUTO, SHOWN_MODES

    return (AUTO, *SHOWN_MODES)


def devices() -> Iterable[str]:
    """Indexes first: they are short, and most hosts have few."""
    import pyxfer

    gpus = [device for device in pyxfer.devices() if device.runtime == "cuda"]
    facts = [fact for device in gpus for fact in (device.uuid, device.pci)]
    return (*(str(device.index) for device in gpus), *(fact.value for fact in facts if fact.value), "host")


def routes() -> Iterable[str]:
    import pyxfer

    return [route.name for route in pyxfer.list_routes()]


def framework_routes() -> Iterable[str]:
    names = [name for name in routes() if not name.startswith("raw.")]
    return (*dict.fromkeys(f"{name.partition('.')[0]}.*" for name in names), *names)


def kinds() -> Iterable[str]:
    from pyxfer._document.codec import KINDS

    return [kind.name for kind in KINDS]


def baselines() -> Iterable[str]:
    from pyxfer._baseline.store import open_store

    with open_store(None, create=False) as store:
        return list(dict.fromkeys(kept.name for kept in store.baselines()))


def measured() -> Iterable[str]:
    """Baselines as `pyxfer compare` takes them; for anything else the shell completes file names."""
    return [f"baseline:{name}" for name in baselines()]
