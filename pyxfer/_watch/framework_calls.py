"""The framework that a program uses, and the calls of it that follow an advice."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyxfer._document.watches import StepFinder

_LIBRARIES = ("torch", "tensorflow", "jax", "cupy")
_COMPILING = ("tensorflow", "jax")


def framework_in_use(finder: StepFinder | None, stepped: bool) -> str:
    """The key of `CALLS`. `stepped`: the program marks its steps, which it cannot do within Keras `fit`."""
    if finder == "keras" or (finder is None and not stepped and "keras" in sys.modules):
        try:
            return f"keras-{sys.modules['keras'].config.backend()}"
        except (KeyError, AttributeError):
            return "keras-"
    if finder == "optimizer":
        return "torch"
    imported = [name for name in (_COMPILING if finder == "compiled" else _LIBRARIES) if name in sys.modules]
    return imported[0] if len(imported) == 1 else ""


@dataclass(frozen=True)
class Calls:
    """How a program does what an advice says. An empty text: the framework has no call for it, so no such advice."""

    ahead: str
    """Makes pageable input ahead; `{makers}` is the number of processes."""
    ahead_pinned: str
    """The same for input that is page-locked already."""
    pins_ahead: bool = True
    """Whether `ahead` sends from page-locked memory."""
    copies_ahead: bool = True
    """Whether it also copies ahead, while the device computes."""
    pin: Mapping[str, str] = field(default_factory=dict)
    """By direction: copies from or to page-locked memory."""
    waits: str = ""
    """Fetches results less often."""
    stream: str = ""
    """Makes a second stream."""
    to: str | None = "..."
    """The framework of a `pyxfer.upload`; None if a program cannot call it."""


_UPLOAD = "pyxfer.upload would stage ordinary arrays with several threads"
_DOWNLOAD = "pyxfer.download would stage results into ordinary arrays with several threads"
_PREFETCH = "pyxfer.prefetch does both for ordinary arrays: it stages them through pinned memory, ahead"
_LATER = "fetch results every few steps, or one step later"
_LOADER = "torch.utils.data.DataLoader(..., num_workers={makers}, pin_memory=True)"
_OWN_LOOP = (
    "in a loop of your own (train_on_batch) pyxfer.prefetch does both: it stages batches through pinned memory, ahead"
)

CALLS: dict[str, Calls] = {
    "": Calls(
        ahead=_PREFETCH,
        ahead_pinned="copy the next input on a stream of its own",
        pin={"h2d": f"pyxfer.pin(x) pins an array in place; {_UPLOAD}", "d2h": _DOWNLOAD},
        waits=_LATER,
        stream="a second CUDA stream",
    ),
    "torch": Calls(
        to="'torch'",
        ahead=f"{_LOADER} and tensor.to(device, non_blocking=True); or pyxfer.prefetch(batches, to='torch'), which "
        "stages ordinary arrays through pinned memory, ahead",
        ahead_pinned="torch.utils.data.DataLoader(..., num_workers={makers}) makes it, and tensor.to(device, "
        "non_blocking=True) copies it without waiting",
        pin={
            "h2d": f"tensor.pin_memory() pins a tensor, once; {_UPLOAD}",
            "d2h": f"torch.empty(..., pin_memory=True) is pinned memory for results; {_DOWNLOAD}",
        },
        waits=f"tensor.item() and tensor.cpu() wait: keep tensor.detach() and {_LATER}",
        stream="torch.cuda.Stream()",
    ),
    "tensorflow": Calls(
        to="'tensorflow'",
        ahead="pyxfer.prefetch(batches, to='tensorflow') stages ordinary arrays through pinned memory, ahead",
        ahead_pinned="tf.data.experimental.prefetch_to_device('/GPU:0') at the end of the dataset copies ahead",
        pin={"h2d": "pyxfer.upload(x, to='tensorflow') stages ordinary arrays", "d2h": _DOWNLOAD},
        waits=f"tensor.numpy() waits: {_LATER}",
    ),
    "jax": Calls(
        to="'jax'",
        ahead="pyxfer.prefetch(batches, to='jax') stages ordinary arrays through pinned memory, ahead",
        ahead_pinned="call jax.device_put for the next input before the step that uses this one",
        pin={"h2d": "pyxfer.upload(x, to='jax') stages ordinary arrays", "d2h": _DOWNLOAD},
        waits=f"jax.block_until_ready and jax.device_get wait: {_LATER}",
    ),
    "cupy": Calls(
        to="'cupy'",
        ahead="pyxfer.prefetch(batches, to='cupy') stages ordinary arrays through pinned memory, ahead",
        ahead_pinned="ndarray.set on a cupy.cuda.Stream(non_blocking=True) copies the next input without waiting",
        pin={
            "h2d": f"cupyx.empty_pinned(...) is pinned memory; {_UPLOAD}",
            "d2h": f"cupyx.empty_pinned(...) is pinned memory for ndarray.get(out=...); {_DOWNLOAD}",
        },
        waits=f"ndarray.get() waits: {_LATER}",
        stream="cupy.cuda.Stream(non_blocking=True)",
    ),
    "keras-tensorflow": Calls(
        to=None,
        ahead="end the tf.data.Dataset that fit gets with tf.data.experimental.prefetch_to_device('/GPU:0'); "
        f"{_OWN_LOOP}",
        ahead_pinned="end the tf.data.Dataset that fit gets with tf.data.experimental.prefetch_to_device('/GPU:0')",
        pins_ahead=False,
        waits="model.compile(..., steps_per_execution=10) fetches results every ten steps",
    ),
    "keras-torch": Calls(
        to=None,
        ahead=f"give fit a {_LOADER}",
        ahead_pinned="give fit a torch.utils.data.DataLoader(..., num_workers={makers})",
        copies_ahead=False,
    ),
    "keras-jax": Calls(
        to=None,
        ahead="give fit a keras.utils.PyDataset(workers={makers}, use_multiprocessing=True); " + _OWN_LOOP,
        ahead_pinned="give fit a keras.utils.PyDataset(workers={makers}, use_multiprocessing=True)",
        pins_ahead=False,
        copies_ahead=False,
        waits="model.compile(..., steps_per_execution=10) fetches results every ten steps",
    ),
    "keras-": Calls(to=None, ahead=_OWN_LOOP, ahead_pinned="", copies_ahead=False),
}


def calls_of(framework: str) -> Calls:
    """Those of the framework, or of any Keras backend, or those that need no framework."""
    return CALLS.get(framework) or CALLS["keras-" if framework.startswith("keras-") else ""]
