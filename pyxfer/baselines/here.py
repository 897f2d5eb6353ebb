"""This machine's fingerprint before anything is measured, and its baseline in a store."""

from __future__ import annotations

from collections.abc import Iterable

from pyxfer.baselines.fingerprint import identity, make_fingerprint
from pyxfer.baselines.store import Store
from pyxfer.errors import CudaUnavailableError, UsageError
from pyxfer.machine.devices import find_device
from pyxfer.machine.environment import read_environment
from pyxfer.machine.link import read_link
from pyxfer.model import Fact
from pyxfer.model_baselines import Baseline, Fingerprint
from pyxfer.model_store import KeptBaseline
from pyxfer.native import HOST, choose

_NO_BASELINE = "A baseline is of a link; --device host makes one of host memory, which says nothing of any link."
_NAMES = {
    "host": "the host's name",
    "gpu": "the GPU",
    "link_kind": "the kind of link",
    "mig": "MIG",
    "confidential": "confidential computing",
    "virtual_machine": "the virtual machine",
    "cpu": "the CPU",
}


def this_machine(device: str) -> tuple[Fingerprint, str]:
    """The machine with this device, and the name by which other processes find that device for certain.

    Raises:
        CudaUnavailableError: no GPU answers, and `device` is not host.
        UsageError: there is no such device.

    """
    try:
        choice = choose(device, require_gpu=device != HOST)
    except CudaUnavailableError as error:
        hint = f"{error.hint} {_NO_BASELINE}".strip()
        raise type(error)(error.code, error.name, error.call, error.where, error.description, hint) from error
    found = find_device(choice.engine, 0 if device == HOST else device)
    fingerprint = make_fingerprint(read_environment(choice.engine, found), found, read_link(choice.engine, found))
    return fingerprint, HOST if device == HOST else found.uuid.value or str(found.index)


def find_baseline(store: Store, name: str, here: Fingerprint) -> Baseline:
    """The current baseline of this name on this machine.

    Raises:
        UsageError: there is none; the text says what the store has instead.

    """
    found = store.baseline(name, identity(here))
    if found is None:
        where = f"{here.host}, {here.gpu.value or here.device}"
        raise UsageError(
            f"the store {store.shown} has no baseline {name!r} of this machine ({where}){_nearest(store, name, here)}; "
            "pyxfer baseline save makes one"
        )
    return found


def _nearest(store: Store, name: str, here: Fingerprint) -> str:
    """What it has that this machine may be taken for: the same GPU, or the same host."""
    kept = store.baselines()
    for alike in (_of_gpu(kept, here), [each for each in kept if each.fingerprint.host == here.host]):
        for each in alike:
            if each.identity == identity(here):
                return f"; it has {each.name!r} of it (--name)"
            return f"; it has {each.name!r} of {each.id}, and there {_what_differs(each.fingerprint, here)}"
    return ""


def _of_gpu(kept: Iterable[KeptBaseline], here: Fingerprint) -> list[KeptBaseline]:
    return [each for each in kept if here.gpu.value is not None and each.fingerprint.gpu.value == here.gpu.value]


def _what_differs(there: Fingerprint, here: Fingerprint) -> str:
    differing = []
    for field, words in _NAMES.items():
        one, other = (_text(getattr(fingerprint, field)) for fingerprint in (there, here))
        if one != other:
            differing.append(f"{words} is {one!r} and not {other!r}")
    return " and ".join(differing) or "something else differs"


def _text(value: object) -> str:
    """What could not be read counts as not there, as it does in the identity."""
    found = value.value if isinstance(value, Fact) else value
    if found is None or isinstance(found, bool):
        return "on" if found else ""
    return str(found)
