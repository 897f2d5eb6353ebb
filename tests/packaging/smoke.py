"""Try an installed pyxfer: `python smoke.py _cuda _host [KERNELS]` loads the engines in the given order.

KERNELS names the ring's kernels for the fills plain, streaming and demoting, such as `plain,sse2,sse2`; without it they
are those of this machine's /proc/cpuinfo. `tools/release` runs this file with each wheel, also on emulated processors,
so it needs only pyxfer and starts no process.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyxfer.errors import CudaError, CudaMemoryError

if TYPE_CHECKING:
    from pyxfer.native import Engine

NBYTES = 3 << 20
FILLS = ("plain", "streaming", "demoting")


def raised(action: Callable[[], object]) -> type[BaseException]:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - its type is what is checked
        return type(error)
    raise AssertionError("no exception")


def check_exceptions(engine: Engine) -> None:
    """The exceptions of the C++ library, of pybind11 and of the engine arrive as their own types."""
    buffer = engine.HostBuffer(NBYTES, "pageable")
    assert raised(lambda: engine.HostBuffer(NBYTES, "fast")) is ValueError
    assert raised(lambda: engine.HostBuffer("a", "b")) is TypeError  # type: ignore[arg-type]
    assert raised(lambda: buffer.forget(0, 2 * NBYTES)) is IndexError
    assert raised(lambda: engine.prefer_node(1 << 20)) is OSError
    assert raised(lambda: engine.HostBuffer(1 << 60, "pageable")) is MemoryError
    buffer.close()


def check_errors_of_cuda(cuda: Engine, host: Engine) -> None:
    host.testing.fail("cudaMalloc", 1, 2)  # type: ignore[attr-defined]
    assert raised(lambda: host.DeviceBuffer(NBYTES)) is CudaMemoryError
    with suppress(CudaError):  # without a GPU
        cuda.DeviceBuffer(NBYTES).close()


def kernels_here() -> list[str]:
    if platform.machine() == "aarch64":
        return ["plain", "stnp", "stnp"]
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    flags = next(set(line.split()) for line in lines if line.startswith("flags"))
    widest = "avx512" if "avx512f" in flags else "avx2" if "avx2" in flags else "sse2"
    return ["plain", widest, f"{widest}-demoting" if {"cldemote", "avx2"} <= flags else widest]


def check_ring(host: Engine, fill: str) -> str:
    """Send an array to the host runtime and back, and return the name of the kernel."""
    sent = bytes(range(256)) * (NBYTES // 256)
    source = ctypes.create_string_buffer(sent, NBYTES)
    back = ctypes.create_string_buffer(NBYTES)
    ring, device = host.Ring(0, 2, 64 << 10, 8, fill, 20), host.DeviceBuffer(NBYTES)
    ring.upload(ctypes.addressof(source), 1, (NBYTES,), (1,), device.address, None, True)
    ring.download(ctypes.addressof(back), 1, (NBYTES,), (1,), device.address, None)
    assert back.raw == sent
    kernel = ring.fill_kernel
    ring.close()
    device.close()
    return kernel


def main(first: str, second: str, kernels: str = "") -> None:
    engines = {name: cast("Engine", importlib.import_module(f"pyxfer.native.{name}")) for name in (first, second)}
    for engine in engines.values():
        check_exceptions(engine)
    check_errors_of_cuda(engines["_cuda"], engines["_host"])
    found = [check_ring(engines["_host"], fill) for fill in FILLS]
    expected = kernels.split(",") if kernels else kernels_here()
    assert found == expected, f"fill kernels {found}, expected {expected}"
    print(f"{first} {second}: {platform.machine()}, Python {platform.python_version()}, kernels {' '.join(found)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
