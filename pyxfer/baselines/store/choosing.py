"""Which of the baselines a user means: by name, by name and host, or by id."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from pyxfer.errors import StoreError
from pyxfer.model_store import KeptBaseline

from .store import Store

_MOST_NAMED = 8


def choose(store: Store, wanted: str, host: str | None = None) -> KeptBaseline:
    """The one of that name or id; `StoreError` where there is none, it is damaged, or more than one machine has it.

    Where no host was named and several have it, this host's is meant.
    """
    kept = store.baselines(host)
    if not any(wanted in (each.id, each.name) for each in kept):
        for damaged in store.damaged_baselines(host):
            if wanted in (damaged.id, damaged.name):
                raise StoreError(damaged.why)
    return _choose_among(kept, wanted, host, store.shown)


def machine(kept: KeptBaseline) -> str:
    """The host, and which GPU of it."""
    gpu = kept.fingerprint.gpu.value
    return f"{kept.fingerprint.host}, {gpu or kept.fingerprint.device}"


def _choose_among(kept: Sequence[KeptBaseline], wanted: str, host: str | None, shown: str) -> KeptBaseline:
    of_id = [each for each in kept if each.id == wanted]
    named = of_id or [each for each in kept if each.name == wanted]
    if host is None and len(named) > 1:
        named = [each for each in named if each.fingerprint.host == platform.node()] or named
    if not named:
        raise StoreError(f"the store {shown} has no baseline {wanted!r:.80}{_of(host)}; {_there(kept)}")
    if len(named) > 1:
        machines = _listed([f"{each.id} ({machine(each)})" for each in named])
        raise StoreError(
            f"{len(named)} machines have a baseline {wanted!r:.80}{_of(host)}: name one by its id, {machines}"
        )
    return named[0]


def _of(host: str | None) -> str:
    return "" if host is None else f" of the host {host!r:.80}"


def _there(kept: Sequence[KeptBaseline]) -> str:
    if not kept:
        return "it has none; pyxfer baseline save makes one"
    return f"it has {_listed(sorted({repr(each.name) for each in kept}))}"


def _listed(words: Sequence[str]) -> str:
    rest = len(words) - _MOST_NAMED
    return ", ".join(words[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
