"""Measures uploads that cast or reorder on the way, and compares each with what is predicted for it.

    python bench/way_predictions.py [--device 0] [--frameworks torch,cupy,jax] [--cases 40] [--rounds 11] [--seed N]
        [--export-json F]

A case is a framework, a dtype and that of its result, a layout or none, and a size from 1 to 256 MiB, all drawn by the
seed. Each is measured from the call of `pyxfer.upload` to the arrival. It is predicted by
`pyxfer._upload.on_the_way`, from other uploads of the same rounds, as by `pyxfer explain`: of the same array without a
conversion, a cast of one size whose excess is the cost of a conversion, and for each pair that shrinks, a cast at five
sizes. All are made once a round in another order, twice each time, of which the second is timed: as in a loop, its
memory is there. The times are medians.
The exit status is 1 if fewer than 90 % of the predictions are within 10 % of the measured time.
"""

from __future__ import annotations

import argparse
import math
import os
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import shared
from numpy.typing import NDArray

import pyxfer
from pyxfer._document.machines import Device, Environment
from pyxfer._machine.environment import read_environment
from pyxfer._upload.on_the_way import PIECE_BYTES, Order, Points, Rates, predicted_on_the_way
from pyxfer.errors import UsageError
from pyxfer.units import format_seconds, format_size

MIB = 1 << 20
SMALLEST, LARGEST = MIB, 256 * MIB
MAX_RESULT = 1 << 30
CASTING_SIZES = (MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
LAUNCH_BYTES = 2 * MIB
LONG_BYTES = 8
PIXELS = (64, 64, 3)
"""Of an image: height, width and channels."""
LAYOUT = "NHWC->NCHW"
SOURCES = ("uint8", "int16", "int32", "int64", "float16", "float32", "float64")
TARGETS = ("float16", "bfloat16", "float32", "float64")
# CuPy has no bfloat16, and JAX no numbers of 64 bits unless it is told to.
REFUSED = {"cupy": ("bfloat16",), "jax": ("float64",)}
FRAMEWORKS = ("torch", "cupy", "jax", "tensorflow")
NEAR, PROMISED = 0.1, 0.9


class Case(msgspec.Struct, frozen=True):
    """An upload of a number of bytes; `permutes`: as images, to another layout."""

    framework: str
    source: str
    target: str
    permutes: bool
    nbytes: int

    @property
    def result_bytes(self) -> int:
        """The size of its result."""
        return self.nbytes // itemsize(self.source) * itemsize(self.target)

    @property
    def converts(self) -> bool:
        """Whether it is more than a plain upload."""
        return self.permutes or self.source != self.target


class Prediction(msgspec.Struct, frozen=True):
    """A case with its predicted order and seconds, and the measured ones."""

    case: Case
    order: Order
    predicted_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_s / self.measured_s

    @property
    def near(self) -> bool:
        """Whether the prediction is as good as promised."""
        return abs(self.ratio - 1) <= NEAR


class Basis(msgspec.Struct, frozen=True):
    """An upload that predictions follow from, with its seconds."""

    case: Case
    measured_s: float


class Predictions(msgspec.Struct, frozen=True):
    """All cases of one device, with the seed that drew them."""

    device: Device
    environment: Environment
    seed: int
    launch_s: dict[str, float]
    basis: tuple[Basis, ...]
    cases: tuple[Prediction, ...]


def main() -> int:
    """Print one line per case; 1 if too few are near."""
    asked = _arguments()
    engine, device = shared.open_device(asked)
    frameworks = [name for name in asked.frameworks.split(",") if name]
    if unknown := set(frameworks) - set(FRAMEWORKS):
        raise UsageError(f"--frameworks names {', '.join(sorted(unknown))}: give some of {', '.join(FRAMEWORKS)}.")
    waits = {name: wait_of(name, asked.device) for name in frameworks}
    chosen = drawn(asked.seed, asked.cases, frameworks)
    cases = list(dict.fromkeys((*chosen, *basis_of(chosen))))
    uploads = [Timed(case, asked.device, waits[case.framework]) for case in cases]
    measure(uploads, asked.rounds, asked.seed)
    measured = {upload.case: statistics.median(upload.times) for upload in uploads}
    launch = {name: launch_s(name, measured) for name in frameworks}
    rows = [predict(case, measured, launch) for case in chosen]
    basis = tuple(Basis(case, measured[case]) for case in basis_of(chosen))
    found = Predictions(device, read_environment(engine, device), asked.seed, launch, basis, tuple(rows))
    header = ["framework", "cast", "layout", "size", "cast on", "predicted", "measured", "ratio", ""]
    print(shared.page(found, header, [cells(row) for row in rows]))
    near = sum(row.near for row in rows)
    print(f"\nseed {asked.seed}: {near} of {len(rows)} within {NEAR:.0%}")
    return shared.conclude(found, asked.export_json, [] if near >= PROMISED * len(rows) else ["Too few are near."])


def itemsize(dtype: str) -> int:
    """Bytes of a number."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def drawn(seed: int, cases: int, frameworks: Sequence[str]) -> list[Case]:
    """Different cases that convert."""
    chance, found = np.random.default_rng(seed), dict[Case, None]()
    while len(found) < cases:
        nbytes = math.exp(chance.uniform(math.log(SMALLEST), math.log(LARGEST)))
        framework, source, target = (str(chance.choice(words)) for words in (frameworks, SOURCES, TARGETS))
        case = whole(Case(framework, source, target, bool(chance.integers(2)), round(nbytes)))
        if case.converts and case.result_bytes <= MAX_RESULT and target not in REFUSED.get(framework, ()):
            found[case] = None
    return list(found)


def whole(case: Case) -> Case:
    """The case with a whole number of images."""
    image = math.prod(PIXELS) * itemsize(case.source)
    return msgspec.structs.replace(case, nbytes=max(1, case.nbytes // image) * image)


def basis_of(chosen: Sequence[Case]) -> list[Case]:
    """The uploads from which these are predicted."""
    found = []
    for framework in dict.fromkeys(case.framework for case in chosen):
        found.append(whole(Case(framework, "uint8", "uint8", False, LAUNCH_BYTES)))
        found.append(whole(Case(framework, "uint8", "float32", False, LAUNCH_BYTES)))
    for case in chosen:
        found.append(plain(case))
        if case.result_bytes < case.nbytes:
            pair = msgspec.structs.replace(case, permutes=False)
            found += [whole(msgspec.structs.replace(pair, nbytes=nbytes)) for nbytes in CASTING_SIZES]
    return list(dict.fromkeys(found))


def plain(case: Case) -> Case:
    """The upload of the same array without a conversion, or of its bytes where the framework has no such numbers."""
    sent = "uint8" if case.framework == "jax" and itemsize(case.source) == LONG_BYTES else case.source
    return msgspec.structs.replace(case, source=sent, target=sent, permutes=False)


@dataclass
class Timed:
    """An upload with its times."""

    case: Case
    device: int | str
    wait: Callable[[Any], object]
    times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        case = self.case
        whole_array, items = source_array(case.source), case.nbytes // itemsize(case.source)
        self._x = whole_array[:items].reshape(-1, *PIXELS)
        self._upload: Any = pyxfer.upload  # the framework is not known to be one of those that it names
        self._asked: dict[str, Any] = {"dtype": case.target} if case.source != case.target else {}
        self._asked |= {"layout": LAYOUT} if case.permutes else {}

    def upload(self) -> None:
        """Make it twice, and time the second."""
        self.wait(self._upload(self._x, self.case.framework, self.device, **self._asked))
        begin = time.perf_counter()
        result = self._upload(self._x, self.case.framework, self.device, **self._asked)
        self.wait(result)
        self.times.append(time.perf_counter() - begin)
        found = str(getattr(result.dtype, "name", result.dtype)).removeprefix("torch.")
        count, *pixels = self._x.shape
        shape = (count, pixels[2], *pixels[:2]) if self.case.permutes else (count, *pixels)
        if (found, tuple(result.shape)) != (self.case.target, shape):
            raise UsageError(f"{self.case} arrived as {found} of the shape {tuple(result.shape)}.")


_ARRAYS: dict[str, NDArray[Any]] = {}


def source_array(dtype: str) -> NDArray[Any]:
    """Numbers from 0 to 250 in ordinary memory, the same for all uploads of a dtype."""
    if dtype not in _ARRAYS:
        _ARRAYS[dtype] = np.resize(np.arange(251).astype(dtype), LARGEST // itemsize(dtype))
    return _ARRAYS[dtype]


def wait_of(framework: str, device: int | str) -> Callable[[Any], object]:
    """What waits until a result has arrived, as the framework does it."""
    on_host = isinstance(device, str)
    if framework == "torch":
        import torch

        return (lambda _: None) if on_host else (lambda _: torch.cuda.synchronize(device))
    if framework == "cupy":
        import cupy

        return lambda _: cupy.cuda.get_current_stream().synchronize()
    if framework == "jax":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax

        wait: Callable[[Any], object] = jax.block_until_ready
        return wait
    import tensorflow as tf

    return (lambda _: None) if on_host else (lambda _: tf.test.experimental.sync_devices())


def measure(uploads: Sequence[Timed], rounds: int, seed: int) -> None:
    """Make all uploads once a round. The first round, which wakes threads and makes kernels, does not count."""
    chance = np.random.default_rng(seed)
    for number in range(rounds + 1):
        for place in chance.permutation(len(uploads)):
            uploads[place].upload()
        if not number:
            for upload in uploads:
                upload.times.clear()


def launch_s(framework: str, measured: dict[Case, float]) -> float:
    """What a conversion costs at any size: the excess of a small cast, less the time of its kernel."""
    cast = whole(Case(framework, "uint8", "float32", False, LAUNCH_BYTES))
    kernel_s = min(PIECE_BYTES, cast.nbytes) * 5 / Rates(()).device_bytes_per_s
    return max(0.0, measured[cast] - measured[plain(cast)] - kernel_s)


def predict(case: Case, measured: dict[Case, float], launch: dict[str, float]) -> Prediction:
    """The prediction of a case beside its measured time. No prediction uses the time of its own case."""
    same = [each for each in measured if each != case and not each.permutes and _pair(each) == _pair(case)]
    is_basis = {whole(msgspec.structs.replace(case, permutes=False, nbytes=nbytes)) for nbytes in CASTING_SIZES}
    casting = tuple(
        (each.nbytes, measured[each]) for each in sorted(same, key=lambda each: each.nbytes) if each in is_basis
    )
    sending: Points = ((case.nbytes, measured[plain(case)]),)
    rates = Rates(sending, casting, launch_s=launch[case.framework])
    found = predicted_on_the_way(case.nbytes, case.result_bytes, rates, permutes=case.permutes)
    return Prediction(case, found.order, found.seconds, measured[case])


def _pair(case: Case) -> tuple[str, str, str]:
    return case.framework, case.source, case.target


def cells(row: Prediction) -> Sequence[str]:
    """The cells of a line."""
    case = row.case
    cast = f"{case.source} to {case.target}" if case.source != case.target else "none"
    times = format_seconds(row.predicted_s), format_seconds(row.measured_s)
    size = format_size(float(f"{case.nbytes:.3g}"))
    doubt = "" if row.near else "not near"
    return [case.framework, cast, LAYOUT if case.permutes else "", size, row.order, *times, f"{row.ratio:.3f}", doubt]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    shared.add_measuring_arguments(parser)
    parser.add_argument("--frameworks", default="torch,cupy,jax")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    return parser.parse_args()


if __name__ == "__main__":
    shared.run_script(main)
