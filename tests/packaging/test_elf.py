"""A wheel built here runs on another distribution's Python, and does not meddle with the libraries around it."""

from __future__ import annotations

from collections import defaultdict

import pytest
from compiled_modules import MODULES, RELEASED, exported, imported, needed

# libgcc_s.so.1 is what NumPy needs as well; the C++ library and CUDA's are linked in.
ANYWHERE = {
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
}
NEWEST_GLIBC = (2, 34)  # RHEL 9; threads and shm_open have that version wherever glibc is at least as new

pytestmark = [RELEASED, pytest.mark.parametrize("name", MODULES)]


def test_a_module_needs_only_what_every_linux_with_numpy_has(name: str) -> None:
    assert needed(name) <= ANYWHERE


def test_a_module_shows_nothing_but_its_entry_point(name: str) -> None:
    assert exported(name) == {f"PyInit_{name}"}


def test_a_module_takes_no_cuda_call_from_anybody(name: str) -> None:
    assert [symbol for symbol in imported(name) if symbol.startswith(("cuda", "cu"))] == []


def test_a_module_asks_for_no_newer_glibc_than_stated(name: str) -> None:
    newer = defaultdict(list)
    for symbol, _, wanted in (each.partition("@GLIBC_") for each in imported(name)):
        if wanted and tuple(int(part) for part in wanted.split(".")) > NEWEST_GLIBC:
            newer[wanted].append(symbol)
    assert not newer, (
        f"these symbols want a newer glibc than {NEWEST_GLIBC[0]}.{NEWEST_GLIBC[1]}: {dict(newer)}. Where they come "
        "from the C++ library, see cmake/PyxferOptions.cmake; a lower bound than this takes a build on an older "
        "distribution, such as in manylinux_2_28."
    )
