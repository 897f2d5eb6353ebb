"""Times `upload` with dtype and layout beside the usual code of a framework, and compares every pair of dtypes with it.

    python bench/on_the_way.py torch|cupy|jax|tensorflow [--only WORD] [--rounds 7] [--device 0] [--export-json F]

Rows, ratios and marks are those of never_slower.py: the usual code casts and permutes on the device, or on the host
before it sends. For comparison stands `upload` of the same array without a conversion, and of one in the smaller dtype.
The exit status is 1 if a row is slower or contents differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import never_slower
import numpy as np
import shared
from never_slower import KIB, MIB, OWN, NeverSlower
from never_slower_peers import PEERS, Case, Peer, Prepared
from numpy.typing import NDArray

import pyxfer
from pyxfer._machine.environment import read_environment
from pyxfer.units import format_size

SIZES = (4 * KIB, 64 * KIB, 256 * KIB, MIB, 24 * MIB, 96 * MIB)
CASES = (
    *[("uint8", "float32", None, nbytes) for nbytes in SIZES],
    *[("uint8", "float32", "NHWC->NCHW", nbytes) for nbytes in (64 * KIB, MIB, 24 * MIB, 96 * MIB)],
    ("float32", None, "NHWC->NCHW", 96 * MIB),
    ("float32", "float16", None, 96 * MIB),
    ("float32", "bfloat16", None, 96 * MIB),
    *[("float64", "float32", None, nbytes) for nbytes in (64 * KIB, MIB, 96 * MIB, 512 * MIB)],
    ("int64", "int32", None, 96 * MIB),
)
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
SOURCES = ("bool", *UNSIGNED, "int8", "int16", "int32", "int64", "float16", "float32", "float64")
RESULTS = ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int32", "int64")
BFLOAT16 = "bfloat16"
_INFINITY = 0x7F80  # the bits of bfloat16


class OnTheWay(NeverSlower, frozen=True):
    """The rows of one framework, and the pairs of dtypes whose contents differ from what others make of them."""

    pairs: int
    different: list[str]
    """From NumPy's cast, with ml_dtypes for bfloat16."""
    unlike_own: list[str]
    """From the framework's own cast."""


class Usual:
    """How users of a framework cast and permute an array on the device."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        library: Any = import_module(peer.name)
        casts: dict[str, Callable[[Any, str], Any]] = {
            "torch": lambda y, dtype: y.to(getattr(library, dtype)),
            "tensorflow": lambda y, dtype: library.cast(y, dtype),  # noqa: PLW0108 - others have no cast
        }
        permute: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {
            "torch": lambda y, axes: y.permute(axes).contiguous(),
            "cupy": lambda y, axes: library.ascontiguousarray(y.transpose(axes)),
            "jax": lambda y, axes: library.numpy.transpose(y, axes),  # noqa: PLW0108 - likewise
            "tensorflow": lambda y, axes: library.transpose(y, axes),  # noqa: PLW0108 - likewise
        }
        bits: dict[str, Callable[[Any], Any]] = {
            "torch": lambda y: y.view(library.int16),
            "tensorflow": lambda y: library.bitcast(y, library.int16),
            "jax": lambda y: library.lax.bitcast_convert_type(y, "int16"),
            "cupy": lambda y: y.view("int16"),
        }
        self.cast: Callable[[Any, str], Any] = casts.get(peer.name, lambda y, dtype: y.astype(dtype))
        self.permute = permute[peer.name]
        self.bits = bits[peer.name]

    def has(self, dtype: str) -> bool:
        """JAX has no 64-bit numbers without x64, and CuPy no bfloat16."""
        if self.peer.name == "jax":
            return dtype not in ("float64", "int64", "uint64")
        return self.peer.name != "cupy" or dtype != BFLOAT16

    def numbers(self, y: Any, dtype: str) -> Any:
        """An array as NumPy's; bfloat16 as its bits."""
        if dtype != BFLOAT16:
            return self.peer.to_numpy(y)
        return self.peer.to_numpy(self.bits(y)).view(np.uint16)


def every_row(usual: Usual, device: int | str) -> Iterator[Case]:
    """All rows that the framework can have."""
    for before, after, layout, nbytes in CASES:
        if usual.has(before) and usual.has(after or before):
            words = " ".join(word for word in (before, "to", after or before, layout) if word)
            name = f"{words} of {format_size(nbytes)}"
            yield Case(name, nbytes, partial(_prepare, usual, device, before, after, layout, nbytes))


def _prepare(
    usual: Usual, device: int | str, before: str, after: str | None, layout: str | None, nbytes: int
) -> Prepared:
    peer = usual.peer
    x = images(before, nbytes, layout)
    axes = axes_of(layout)
    to: Any = peer.name

    def own() -> Any:
        return pyxfer.upload(x, to=to, device=device, dtype=after, layout=layout)

    def on_device() -> Any:
        y = peer.on_device(x)
        y = usual.permute(y, axes) if layout else y
        return usual.cast(y, after) if after else y

    def on_host() -> Any:
        y = np.ascontiguousarray(x.transpose(axes)) if layout else x
        return peer.on_device(y.astype(after) if after else y)

    dtype = after or before
    wanted = numpys(np.ascontiguousarray(x.transpose(axes)) if layout else x, dtype)
    if not same(usual.numbers(own(), dtype), wanted, dtype):
        raise AssertionError("an upload has other contents than NumPy's cast")
    ways: dict[str, Callable[[], object]] = {OWN: own, "on the device": on_device}
    if dtype != BFLOAT16 and nbytes <= 96 * MIB:
        ways["on the host"] = on_host
    references: dict[str, Callable[[], object]] = {"plain": lambda: pyxfer.upload(x, to=to, device=device)}
    itemsize = 2 if dtype == BFLOAT16 else np.dtype(dtype).itemsize
    if itemsize < x.itemsize:
        small = np.ones(x.shape, np.uint16 if dtype == BFLOAT16 else dtype)
        references["plain, smaller"] = lambda: pyxfer.upload(small, to=to, device=device)
    return Prepared(ways, references)


def images(dtype: str, nbytes: int, layout: str | None) -> NDArray[Any]:
    """Random numbers, in the shape of images if they are permuted."""
    kind = np.dtype(dtype)
    count = nbytes // kind.itemsize
    x = np.random.default_rng(1).integers(0, 256, count, np.uint8).astype(kind)
    if kind.kind == "f":
        x *= kind.type(0.7)
    return x[: count // 768 * 768].reshape(-1, 16, 16, 3) if layout else x


def axes_of(layout: str | None) -> tuple[int, ...]:
    """The axes of the source in the order of the result's."""
    before, _, after = (layout or "").partition("->")
    return tuple(before.index(axis) for axis in after)


def different_pairs(usual: Usual, device: int | str) -> tuple[int, list[str], list[str]]:
    """How many pairs were compared, by 1 MiB of random bits, and those that differ from NumPy's and its own cast."""
    bits = np.random.default_rng(2).integers(0, 256, MIB, np.uint8)
    count, different, unlike_own = 0, [], []
    to: Any = usual.peer.name
    for before in filter(usual.has, SOURCES):
        x = (bits & 1).astype(bool) if before == "bool" else bits.view(before)
        for after in filter(usual.has, RESULTS):
            if before.startswith("float") and after in INTEGERS:
                continue
            count += 1
            found = usual.numbers(pyxfer.upload(x, to=to, device=device, dtype=after), after)
            if not same(found, numpys(x, after), after):
                different.append(f"{before} to {after}")
            if not same(found, usual.numbers(usual.cast(usual.peer.on_device(x), after), after), after):
                unlike_own.append(f"{before} to {after}")
    return count, different, unlike_own


def numpys(x: Any, dtype: str) -> Any:
    """NumPy's cast; bfloat16 as its bits."""
    with np.errstate(all="ignore"):
        if dtype != BFLOAT16:
            return x.astype(dtype)
        return x.astype(import_module("ml_dtypes").bfloat16).view(np.uint16)


def same(found: Any, wanted: Any, dtype: str) -> bool:
    """Whether all bits are equal; the bits of a NaN may differ."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if dtype == BFLOAT16:
        are_nan = [(numbers & 0x7FFF) > _INFINITY for numbers in (found, wanted)]
    else:
        are_nan = [numbers != numbers for numbers in (found, wanted)]  # noqa: PLR0124 - only NaN differs from itself
    return bool((are_nan[0] == are_nan[1]).all() and _bytes(found, are_nan[0]) == _bytes(wanted, are_nan[1]))


def _bytes(numbers: Any, are_nan: Any) -> bytes:
    return bytes(np.where(are_nan, numbers.dtype.type(0), numbers).tobytes())


def main() -> int:
    """Measure and print the table; 1 if a row is slower or contents differ."""
    asked = _arguments()
    engine, device = shared.open_device(asked)
    peer = PEERS[asked.framework](asked.device)
    usual = Usual(peer)
    pairs, different, unlike = (0, [], []) if asked.only else different_pairs(usual, asked.device)
    rows = []
    for case in every_row(usual, asked.device):
        if asked.only in case.name:
            rows.append(never_slower.measure(case, peer, asked.rounds))
            print(*never_slower.cells(rows[-1]), sep="  ", file=sys.stderr, flush=True)
    environment = read_environment(engine, device)
    result = OnTheWay(peer.name, peer.version, device, environment, rows, pairs, different, unlike)
    print(shared.page(result, never_slower.HEADER, [never_slower.cells(row) for row in rows]))
    print(f"\n{compared(result)}")
    slower = [f"slower: {row.name}" for row in rows if row.mark() == "slower"]
    return shared.conclude(result, asked.export_json, [*slower, *(f"different: {pair}" for pair in different)])


def compared(of: OnTheWay) -> str:
    """What was compared, in a sentence."""
    differ, unlike = (", ".join(pairs) or "none" for pairs in (of.different, of.unlike_own))
    return (
        f"{of.framework}: {of.pairs} pairs of dtypes, 1 MiB of random bits each; different from NumPy's cast: "
        f"{differ}; from the framework's own: {unlike}."
    )


def markdown(results: Sequence[OnTheWay]) -> str:
    """The tables of all frameworks for docs/converting.md, and what was compared."""
    lines = [f"- {compared(of)}" for of in sorted(results, key=lambda of: of.framework)]
    return never_slower.markdown(results) + "\n\n" + "\n".join(lines)


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("framework", choices=sorted(PEERS))
    shared.add_measuring_arguments(parser)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)
