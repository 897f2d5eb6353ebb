"""The place of a transfer, routes as subjects of the sampler, and what their rows have beyond those of raw copies."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from frameworks import own_routes
from measure.fakes import Clock, Timed
from samples import make_link

import pyxfer
from pyxfer._ceiling.plans import Limits
from pyxfer._ceiling.rows import Assembler, Ceilings, Item
from pyxfer._document.machines import Fact, Side
from pyxfer._document.runs import Measurement, Trial, Workload
from pyxfer._frameworks.base import HOST_COPY, IMAGE_BYTES, Route, SourceKind
from pyxfer._frameworks.bench import ALIASED, MAX_ROUNDS, host_ceilings, route_head
from pyxfer._frameworks.context import HostArena, RouteContext
from pyxfer._frameworks.messages import Marker, Task
from pyxfer._frameworks.subjects import FEWEST_CALLS, MAX_CALLS, RouteSubject, describe_error
from pyxfer._measure.sampler import Series
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.targets import Target
from pyxfer.errors import RefusedError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier


MIB = 1024**2
NBYTES = 16 * MIB
# 16 MiB in 400 us: 41.9 GB/s, below the 58.45 of the link.
CEILING_S = 400e-6
FAITHFUL = {"verified": Fact(True), "first_s": Fact(1e-3)}


def task(workload: Workload = "copy") -> Task:
    return Task("torch", "torch", "", (), (), "0", workload, (NBYTES,), Limits(0.005, 7.0, 1))


def make_route(**overrides: Any) -> Route:
    words: dict[str, Any] = {"direction": "h2d", "dma": "pageable", **overrides}
    return own_routes.make_route("mine.loader", own_routes.Copied, **words)


def trials_of(seconds: Sequence[float]) -> list[Trial]:
    return [Trial(index, each, each / 10, each, faults=0.0) for index, each in enumerate(seconds)]


def found_of(route: Route, trials: Sequence[Trial] | None = None, **overrides: Any) -> Item[Route]:
    series = Series(Timed(route.name, Clock()))
    side: Side = "ingest" if route.direction == "ingest" else "h2d"
    for trial in trials_of([800e-6] * 10) if trials is None else trials:
        series.add({side: trial})
    return Item(route_head(route, task()), overrides.pop("nbytes", NBYTES), series=series, **{**FAITHFUL, **overrides})


def assembled(found: Item[Route], ceilings: Ceilings | None = None, workload: Workload = "copy") -> Measurement:
    above: Ceilings = {("h2d", "h2d", NBYTES): trials_of([CEILING_S] * 10)} if ceilings is None else ceilings
    found.head = route_head(found.head.source, task(workload))
    return Assembler(make_link(), 0.005, 7.0, most_trials=MAX_ROUNDS).measurements([found], above)[0]


def test_a_row_names_its_route_and_its_worker() -> None:
    row = assembled(found_of(make_route(usual=True)))
    assert (row.route, row.worker, row.mode, row.bracket) == ("mine.loader", "torch", "framework", "host")
    assert row.route_info is not None
    assert (row.route_info.framework, row.route_info.call, row.route_info.usual) == ("torch", "x.copy()", True)
    assert row.gbps == pytest.approx(NBYTES / 800e-6 / 1e9)
    assert row.of_peak == pytest.approx(NBYTES / 800e-6 / 1e9 / 58.45, rel=1e-4)
    assert row.dispatch_s == pytest.approx(80e-6)
    assert row.wall_s == pytest.approx(800e-6)
    assert row.first_s == Fact(1e-3)
    assert row.of_ceiling == pytest.approx(0.5)


def test_the_ceiling_of_ingest_is_one_host_copy() -> None:
    reference = found_of(HOST_COPY, trials_of([1e-3] * 10))
    other = found_of(make_route(), trials_of([1e-9] * 10))
    ceilings = host_ceilings([reference, other])
    assert list(ceilings) == [("ingest", "ingest", NBYTES)]
    row = assembled(found_of(make_route(direction="ingest"), trials_of([4e-3] * 10)), ceilings)
    assert row.of_ceiling == pytest.approx(0.25)
    assert row.of_peak is None
    itself = assembled(reference, ceilings)
    assert itself.of_ceiling == pytest.approx(1.0)
    assert itself.route_info is None


def test_a_conversion_on_the_host_is_a_remark_with_its_factor() -> None:
    row = assembled(found_of(make_route(inflation=4.0)))
    (remark,) = [remark for remark in row.remarks if remark.code == "inflated"]
    assert remark.text.startswith("it converts on the host first, so 4 times the bytes cross the link")
    assert remark.fix == "convert on the GPU, after the copy, as pyxfer.upload with a dtype does"
    assert row.gbps == pytest.approx(NBYTES / 800e-6 / 1e9)


def test_a_result_in_the_arrays_own_memory_has_a_time_and_no_bandwidth() -> None:
    row = assembled(found_of(make_route(direction="ingest"), trials_of([1e-6] * 10), no_rate=ALIASED))
    assert row.elapsed_s == pytest.approx(1e-6)
    assert row.rate.reason == row.ceiling_share.reason == ALIASED


def test_ingest_may_be_faster_than_the_link() -> None:
    row = assembled(found_of(make_route(direction="ingest"), trials_of([100e-6] * 10)))
    assert row.gbps == pytest.approx(167.8, rel=1e-3)


def test_an_unmeasured_route_has_a_reason() -> None:
    row = assembled(Item(route_head(make_route(), task()), NBYTES))
    assert row.rate.reason == "the run ended before its first trial"
    assert row.verified.reason == "the run ended before it was verified"
    assert row.first_s.reason == "the run ended before its first call"


def test_a_route_that_fails_before_its_first_trial_says_why() -> None:
    found = found_of(make_route(), [])
    assert found.series is not None
    found.series.failure = "RuntimeError: CUDA out of memory"
    assert assembled(found).rate.reason == "RuntimeError: CUDA out of memory"


def test_a_row_of_image_batch_has_its_number_of_images() -> None:
    route = make_route(usual=True, usual_for_images=False)
    row = assembled(found_of(route, nbytes=8 * IMAGE_BYTES), workload="image-batch")
    assert row.batch == 8
    assert row.route_info is not None
    assert row.route_info.usual is False
    assert assembled(found_of(route)).batch is None


@pytest.fixture
def marker() -> Iterator[Marker]:
    marker = Marker()
    yield marker
    marker.close()


@pytest.fixture
def make(context: RouteContext, marker: Marker, engine: Engine) -> Iterator[Any]:
    made: list[RouteSubject] = []

    def subject(kind: type[pyxfer.Transfer], **options: Any) -> tuple[RouteSubject, Any]:
        transfer = kind(context)
        made.append(RouteSubject(own_routes.make_route("mine.x", kind), transfer, context, engine, marker, **options))
        return made[-1], transfer

    yield subject
    for each in made:
        each.close()


def test_a_short_call_is_preceded_by_an_untimed_one(make: Any) -> None:
    subject, _ = make(own_routes.Counting)
    before = own_routes.Counting.calls
    trial = subject.trial(3)["ingest"]
    assert own_routes.Counting.calls - before == 2
    assert (trial.round, trial.copies) == (3, 1)
    assert trial.elapsed_s >= 0.002


def test_a_long_call_is_not_preceded_by_an_untimed_one(make: Any) -> None:
    subject, _ = make(own_routes.Slow)
    subject.trial(0)
    again = subject.trial(1)["ingest"]
    assert again.elapsed_s >= 0.02


def test_several_calls_in_a_trial_give_their_mean(make: Any) -> None:
    subject, _ = make(own_routes.Counting, repeats=True)
    subject.warm()
    before = own_routes.Counting.calls
    begun = time.perf_counter()
    trial = subject.trial(0)["ingest"]
    whole_s = time.perf_counter() - begun
    assert FEWEST_CALLS <= trial.copies <= MAX_CALLS
    assert own_routes.Counting.calls - before == trial.copies + 1
    assert 0.002 <= trial.elapsed_s <= whole_s / trial.copies


def test_a_trial_faster_than_the_link_is_invalid(make: Any) -> None:
    subject, _ = make(own_routes.Copied, least_s=10.0)
    assert subject.trial(0)["ingest"].invalid == (
        "elided: it took less time than the link needs for its bytes, so they did not all cross it, or the shown link "
        "is wrong"
    )
    subject, _ = make(own_routes.Slow, least_s=0.02)
    assert subject.trial(0)["ingest"].invalid is None


def test_the_first_call_is_timed_separately(make: Any) -> None:
    subject, _ = make(own_routes.Slow)
    assert subject.warm() >= 0.02


def test_nothing_is_marked_or_kept_between_trials(make: Any, marker: Marker) -> None:
    subject, transfer = make(own_routes.Copied)
    subject.warm()
    subject.verify(1)
    subject.trial(0)
    assert (marker.read(), transfer.result) == (None, None)


@pytest.mark.parametrize(("kind", "found"), [(own_routes.Aliased, (True, True)), (own_routes.Cached, (False, False))])
def test_verification_detects_an_alias_and_a_cache(make: Any, kind: Any, found: tuple[bool, bool]) -> None:
    subject, _ = make(kind)
    verified, aliased = subject.verify(1)
    assert (verified.value, aliased) == found
    assert (subject.anchor is None) == aliased


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError("\n\n  three  "), "ValueError: three"),
        (KeyError(), "KeyError"),
    ],
)
def test_an_error_is_described_in_one_line(error: Exception, words: str) -> None:
    assert describe_error(error) == words


HELD_BYTES = 64 << 10


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
    return RouteContext(HELD_BYTES, 0, arena, copier, engine)


@pytest.mark.parametrize(("kind", "offset"), [("pageable", 16), ("aligned", 0), ("pinned", 0)])
def test_sources_take_turns_at_their_alignment_and_contain_the_held_data(
    context: RouteContext, kind: SourceKind, offset: int
) -> None:
    data = np.arange(HELD_BYTES, dtype=np.uint8)
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
        RouteContext(HELD_BYTES, 0, arena, copier, engine).images()


def test_a_source_that_does_not_rotate_is_the_same_memory_every_time(
    engine: Engine, arena: HostArena, copier: Copier
) -> None:
    context = RouteContext(HELD_BYTES, 0, arena, copier, engine, rotates=False)
    assert context.source().ctypes.data == context.source().ctypes.data


def test_a_source_is_recognised_and_a_copy_is_not(context: RouteContext) -> None:
    source = context.source()
    assert context.lent(source[10:])
    assert not context.lent(source.copy())


def test_device_memory_is_read_and_written_without_the_framework(engine: Engine, context: RouteContext) -> None:
    buffer = engine.DeviceBuffer(HELD_BYTES, 0)
    data = np.arange(HELD_BYTES, dtype=np.uint8)[::-1]
    context.store(buffer.address, data)
    assert np.array_equal(context.fetch(buffer.address, HELD_BYTES), data)
    buffer.close()


def locked() -> int:
    return sum(nbytes for kind, _, nbytes in testing.allocated() if kind != "device")


def test_one_uploader_serves_every_size_and_ends_with_the_memory(engine: Engine, copier: Copier) -> None:
    arena = HostArena(engine, 0, 1 << 20, 0)
    places = [RouteContext(nbytes, 0, arena, copier, engine) for nbytes in (HELD_BYTES, 1 << 20)]
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
