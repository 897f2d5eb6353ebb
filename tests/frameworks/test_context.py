"""The place of a transfer: rotating sources, their alignment, and raw access to device memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pyxfer._frameworks.base import IMAGE_BYTES, SourceKind
from pyxfer._frameworks.context import HostArena, RouteContext
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.targets import Target
from pyxfer.errors import RefusedError, UsageError
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier

NBYTES = 64 << 10


@pytest.fixture
def copier(engine: Engine) -> Iterator[Copier]:
    copier = engine.Copier(0, 1, 30.0)
    yield copier
    copier.close()


@pytest.fixture
def arena(engine: Engine) -> Iterator[HostArena]:
    arena = HostArena(engine, 0, 4 << 20, 0)
    yield arena
    arena.close()


@pytest.fixture
def context(engine: Engine, arena: HostArena, copier: Copier) -> RouteContext:
    return RouteContext(NBYTES, 0, arena, copier, engine)


@pytest.mark.parametrize(("kind", "offset"), [("pageable", 16), ("aligned", 0), ("pinned", 0)])
def test_sources_take_turns_at_their_alignment_and_contain_the_held_data(
    context: RouteContext, kind: SourceKind, offset: int
) -> None:
    data = np.arange(NBYTES, dtype=np.uint8)
    with context.holding(data):
        first, second = context.source(kind), context.source(kind)
    assert not np.may_share_memory(first, second)
    for each in (first, second):
        assert np.array_equal(each, data)
        assert each.ctypes.data % 64 == offset


@pytest.mark.parametrize("nbytes", [1, 4096, 4 << 20])
def test_the_largest_size_has_two_places(engine: Engine, arena: HostArena, copier: Copier, nbytes: int) -> None:
    context = RouteContext(nbytes, 0, arena, copier, engine)
    assert not np.may_share_memory(context.source(), context.source())


def test_large_sources_are_together_larger_than_the_cache(engine: Engine, copier: Copier) -> None:
    arena = HostArena(engine, 0, 1 << 20, 8 << 20)
    context = RouteContext(1 << 20, 0, arena, copier, engine)
    addresses = {context.source().ctypes.data for _ in range(32)}
    assert len(addresses) * (1 << 20) >= 8 << 20
    arena.close()


def test_images_are_whole_batches(engine: Engine, arena: HostArena, copier: Copier) -> None:
    context = RouteContext(2 * IMAGE_BYTES, 0, arena, copier, engine)
    assert context.batch == 2
    assert context.images().shape == (2, 256, 256, 3)
    with pytest.raises(
        RefusedError, match=r"are batches of 196608 bytes \(256 x 256 x 3\); 65536 bytes are not a whole"
    ):
        RouteContext(NBYTES, 0, arena, copier, engine).images()


def test_a_source_that_does_not_rotate_is_the_same_memory_every_time(
    engine: Engine, arena: HostArena, copier: Copier
) -> None:
    context = RouteContext(NBYTES, 0, arena, copier, engine, rotates=False)
    assert context.source().ctypes.data == context.source().ctypes.data


def test_a_source_is_recognised_and_a_copy_is_not(context: RouteContext) -> None:
    source = context.source()
    assert context.lent(source[10:])
    assert not context.lent(source.copy())


def test_device_memory_is_read_and_written_without_the_framework(engine: Engine, context: RouteContext) -> None:
    buffer = engine.DeviceBuffer(NBYTES, 0)
    data = np.arange(NBYTES, dtype=np.uint8)[::-1]
    context.store(buffer.address, data)
    assert np.array_equal(context.fetch(buffer.address, NBYTES), data)
    buffer.close()


def locked() -> int:
    return sum(nbytes for kind, _, nbytes in testing.allocated() if kind != "device")


def test_one_uploader_serves_every_size_and_ends_with_the_memory(engine: Engine, copier: Copier) -> None:
    arena = HostArena(engine, 0, 1 << 20, 0)
    places = [RouteContext(nbytes, 0, arena, copier, engine) for nbytes in (NBYTES, 1 << 20)]
    uploader = places[0].uploader()
    assert places[1].uploader() is uploader
    before = locked()
    assert uploader.upload(places[1].source("pinned"), Target(DevicePool(engine, 0, 0))).nbytes == 1 << 20
    assert locked() > before
    arena.close()
    arena.close()
    assert locked() == before
    with pytest.raises(UsageError, match="this Uploader is closed"):
        uploader.upload(np.zeros(1), Target(DevicePool(engine, 0, 0)))


def test_nothing_is_page_locked_before_the_first_upload(context: RouteContext, engine: Engine) -> None:
    before = locked()
    uploader = context.uploader()
    assert locked() == before
    uploader.upload(context.source(), Target(DevicePool(engine, 0, 0)))
    assert locked() > before
