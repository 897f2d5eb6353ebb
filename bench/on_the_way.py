"""upload with dtype and layout beside the usual code of each framework, in turns, with its contents checked.

The reference of each case is `upload` of what crosses, without a conversion: the larger of the link's time and the
fill's. Writes JSON, and prints a table.

    python bench/on_the_way.py --to torch,cupy,jax --out on_the_way.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import pyxfer
from pyxfer.native import load

MIB = 1 << 20
MIN_ROUNDS, MAX_ROUNDS = 6, 400
INFINITY = 0x7F80  # the bits of bfloat16
CASES = (
    ("uint8", "float32", "", 24 * MIB),
    ("uint8", "float32", "", 96 * MIB),
    ("uint8", "float32", "NHWC->NCHW", 24 * MIB),
    ("uint8", "float32", "NHWC->NCHW", 96 * MIB),
    ("uint8", "float16", "", 96 * MIB),
    ("float32", "float32", "NHWC->NCHW", 96 * MIB),
    ("float32", "bfloat16", "", 96 * MIB),
    ("float32", "float16", "", 96 * MIB),
    ("float64", "float32", "", 96 * MIB),
    ("float64", "float32", "", 512 * MIB),
    ("int64", "int32", "", 96 * MIB),
    ("uint8", "float32", "", 4096),
    ("uint8", "float32", "", 64 << 10),
    ("uint8", "float32", "", 256 << 10),
    ("uint8", "float32", "", MIB),
    ("uint8", "float32", "NHWC->NCHW", 64 << 10),
    ("uint8", "float32", "NHWC->NCHW", MIB),
    ("float64", "float32", "", 64 << 10),
    ("float64", "float32", "", MIB),
)
PAIRS = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
)
TARGETS = ("float16", "bfloat16", "float32", "float64", "int32", "uint8", "bool")


class Library(NamedTuple):
    """What users write in each framework, and how its arrays come back."""

    send: Callable[[Any], Any]
    cast: Callable[[Any, str], Any]
    permute: Callable[[Any, tuple[int, ...]], Any]
    wait: Callable[[Any], Any]
    back: Callable[[Any], Any]


def torch_library() -> Library:
    torch = import_module("torch")

    def back(y: Any) -> Any:
        return y.view(torch.int16).cpu().numpy() if y.dtype == torch.bfloat16 else y.cpu().numpy()

    return Library(
        lambda x: torch.from_numpy(x).to("cuda"),
        lambda y, dtype: y.to(getattr(torch, dtype)),
        lambda y, axes: y.permute(axes).contiguous(),
        lambda _: torch.cuda.synchronize(),
        back,
    )


def cupy_library() -> Library:
    cupy = import_module("cupy")
    return Library(
        cupy.asarray,
        lambda y, dtype: y.astype(dtype),
        lambda y, axes: cupy.ascontiguousarray(y.transpose(axes)),
        lambda _: cupy.cuda.Device().synchronize(),
        cupy.asnumpy,
    )


def jax_library() -> Library:
    jax = import_module("jax")
    device = jax.devices()[0]
    return Library(
        lambda x: jax.device_put(x, device),
        lambda y, dtype: y.astype(dtype),
        jax.numpy.transpose,
        lambda y: y.block_until_ready(),
        lambda y: np.asarray(y).view(np.int16) if y.dtype.name == "bfloat16" else np.asarray(y),
    )


def tensorflow_library() -> Library:
    tf = import_module("tensorflow")

    def back(y: Any) -> Any:
        return tf.bitcast(y, tf.int16).numpy() if y.dtype == tf.bfloat16 else y.numpy()

    return Library(
        lambda x: tf.identity(tf.constant(x)),
        tf.cast,
        tf.transpose,
        lambda y: tf.reduce_max(tf.cast(tf.reshape(y, [-1])[:1], tf.float32)).numpy(),
        back,
    )


LIBRARIES = {"torch": torch_library, "cupy": cupy_library, "jax": jax_library, "tensorflow": tensorflow_library}


def has(name: str, dtype: str) -> bool:
    if name == "jax" and dtype in ("float64", "int64", "uint64"):
        return False  # without x64
    return not (name == "cupy" and dtype == "bfloat16")


def images(dtype: str, nbytes: int, layout: str) -> Any:
    """Random numbers, in the shape of images if they are permuted."""
    kind = np.dtype(dtype)
    count = nbytes // kind.itemsize
    random = np.random.default_rng(1)
    x = random.integers(0, 256, count, np.uint8).astype(kind)
    if kind.kind == "f":
        x *= kind.type(0.7)
    return x[: count // 768 * 768].reshape(-1, 16, 16, 3) if layout else x


def axes_of(layout: str) -> tuple[int, ...]:
    before, _, after = layout.partition("->")
    return tuple(before.index(axis) for axis in after)


def same(found: Any, wanted: Any) -> bool:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if found.dtype.kind == "f":
        is_nan = np.isnan(wanted)
        if not (np.isnan(found) == is_nan).all():
            return False
        found, wanted = found[~is_nan], wanted[~is_nan]
    return bool((np.ascontiguousarray(found).view(np.uint8) == np.ascontiguousarray(wanted).view(np.uint8)).all())


def in_turns(
    calls: dict[str, Callable[[], Any]], wait: Callable[[Any], Any], budget_s: float
) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in calls}
    until = time.perf_counter() + budget_s
    rounds = 0
    while rounds < MIN_ROUNDS or (time.perf_counter() < until and rounds < MAX_ROUNDS):
        for name, call in calls.items():
            begin = time.perf_counter()
            wait(call())
            taken[name].append(time.perf_counter() - begin)
        rounds += 1
    return {name: sorted(times[2:]) for name, times in taken.items()}


def measure(name: str, library: Library, case: tuple[str, str, str, int], budget_s: float) -> dict[str, Any]:
    before, after, layout, nbytes = case
    x = images(before, nbytes, layout)
    wishes = {"dtype": after, "layout": layout or None}

    def usual() -> Any:
        y = library.send(x)
        if layout:
            y = library.permute(y, axes_of(layout))
        return library.cast(y, after) if after != before else y

    def on_host() -> Any:
        """As users write it who cast before they send."""
        y = np.ascontiguousarray(x.transpose(axes_of(layout))) if layout else x
        return library.send(y.astype(after) if after != before else y)

    calls = {"usual": usual, "pyxfer": lambda: pyxfer.upload(x, name, **wishes)}
    if after != "bfloat16":
        calls["on_host"] = on_host
    shrinks = after != "bool" and np.dtype(x.dtype).itemsize > (2 if after == "bfloat16" else np.dtype(after).itemsize)
    if nbytes >= MIB:
        calls["crossing"] = lambda: pyxfer.upload(x, name)
        if shrinks:
            small = np.zeros(x.size, np.uint16 if after == "bfloat16" else after)
            small.fill(1)
            calls["crossing_small"] = lambda: pyxfer.upload(small, name)
    if not has(name, before):
        calls = {key: call for key, call in calls.items() if key in ("pyxfer", "on_host", "crossing_small")}
    times = in_turns(calls, library.wait, budget_s)
    is_same = None
    if "usual" in calls:
        is_same = same(library.back(calls["pyxfer"]()), library.back(usual()))
    elif "on_host" in calls:
        is_same = same(library.back(calls["pyxfer"]()), library.back(on_host()))
    return {
        "framework": name,
        "source": before,
        "to": after,
        "layout": layout,
        "nbytes": x.nbytes,
        "same": is_same,
        "median_s": {key: median(values) for key, values in times.items()},
        "quarter_s": {key: values[len(values) // 4] for key, values in times.items()},
        "rounds": {key: len(values) for key, values in times.items()},
    }


def every_pair(name: str, library: Library) -> list[str]:
    """The pairs whose contents differ from the framework's own cast: none of 1 MiB of random bits, with NaN and inf."""
    wrong = []
    bits = np.random.default_rng(2).integers(0, 256, MIB, np.uint8)
    for before in PAIRS:
        x = (bits & 1).astype(bool) if before == "bool" else bits.view(before)
        for after in TARGETS:
            is_refused = np.dtype(before).kind == "f" and after in ("int32", "uint8")
            if is_refused or not has(name, before) or not has(name, after):
                continue
            found = library.back(pyxfer.upload(x, name, dtype=after))
            if after == "bfloat16":
                wanted = library.back(library.cast(library.send(x), after))
            else:
                with np.errstate(all="ignore"):
                    wanted = x.astype(after)
            if after == "bfloat16":  # the bits of a NaN differ
                nan = (wanted & 0x7FFF) > INFINITY
                right = bool((((found & 0x7FFF) > INFINITY) == nan).all() and (found[~nan] == wanted[~nan]).all())
            else:
                right = same(found, wanted)
            if not right:
                wrong.append(f"{before} to {after}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", default="torch,cupy,jax")
    parser.add_argument("--budget", type=float, default=0.4, help="seconds for each case")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    engine = load("cuda")
    document: dict[str, Any] = {
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": engine.device_properties(0).name,
        "pyxfer": pyxfer.__version__,
        "rows": [],
        "wrong_pairs": {},
    }
    print(
        f"{'framework':10} {'MiB':>6} {'case':26} {'usual':>8} {'on host':>8} {'pyxfer':>8} {'crossing':>8}  ms  same"
    )
    for name in chosen.to.split(","):
        library = LIBRARIES[name]()
        document["wrong_pairs"][name] = every_pair(name, library)
        for case in CASES:
            if not has(name, case[1]):
                continue
            row = measure(name, library, case, chosen.budget)
            document["rows"].append(row)
            times = {key: f"{1e3 * value:8.3f}" for key, value in row["median_s"].items()}
            shown = [times.get(key, " " * 8) for key in ("usual", "on_host", "pyxfer", "crossing")]
            small = times.get("crossing_small", "")
            label = f"{case[0]} {case[1]} {case[2]}"
            print(f"{name:10} {case[3] / MIB:6.2f} {label:26} {' '.join(shown)} {small} {row['same']}", flush=True)
        print(f"{name}: pairs that differ: {document['wrong_pairs'][name] or 'none'}")
    if chosen.out:
        chosen.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
