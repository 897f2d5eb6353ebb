"""Raw copies as subjects of the sampler: in one direction, in both, and staged."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from ceiling.troubles import CHOSEN
from tracing import captures

from pyxfer._ceiling import subjects
from pyxfer._ceiling.arena import Arena, sent_bytes, stride_bytes
from pyxfer._ceiling.plans import MEMORIES, CopyPlan
from pyxfer._ceiling.resources import StagedCopier
from pyxfer._ceiling.subjects import MAX_COPIES, MAX_QUEUED, WINDOW_S, RawCopies, StagedCopies, make_subject
from pyxfer._document.machines import Fact, Side
from pyxfer._document.runs import Direction, Trial
from pyxfer._measure.bracket import Bracket
from pyxfer._trace.collector import Usage
from pyxfer.native import Engine
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer.native._cuda import Copier

KIB, MIB = 1024, 1024**2
MODES = ("memcpy", "async", "streams:3", "batch")
ONE_WAY = [CopyPlan(direction, memory, mode) for direction in ("h2d", "d2h") for memory in MEMORIES for mode in MODES]
BOTH_WAYS = [CopyPlan("both", memory, "async") for memory in MEMORIES]
# 1 GB/s: below the memory of any machine, so that the model decides.
RATE = 1e9


class Idle:
    """Reports copies that it does not make."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@dataclass
class OnlyGated(Idle):
    """Makes no copies without a gate."""

    copier: Copier

    def __post_init__(self) -> None:
        self.gated, self.both_gated = self.copier.gated, self.copier.both_gated


@dataclass
class OneSided(Idle):
    """Makes only one side of a copy both ways."""

    copier: Copier
    side: int

    def both_gated(self, *arguments: Any) -> None:
        self.copier.gated("async", arguments[self.side], 1, 0, arguments[-2])

    def both_threads(self, *arguments: Any) -> None:
        self.copier.on_stream("async", arguments[self.side], arguments[-1])


# Copies, warm-ups and the first slot, of the arguments of each call.
WINDOWS: dict[str, Callable[..., tuple[int, int, int]]] = {
    "gated": lambda _mode, _lane, copies, warmups, first, _untimed: (copies, warmups, first),
    "on_stream": lambda _mode, _lane, first, copies: (copies, 0, first),
    "drained": lambda _lane, slot: (1, 0, slot),
    "both_gated": lambda _h2d, _d2h, copies, warmups, _tails, first, _untimed: (copies, warmups, first),
    "both_issued": lambda _h2d, _d2h, copies, first: (copies, 0, first),
    "both_threads": lambda _h2d, _d2h, copies, first: (copies, 0, first),
}


@dataclass
class Recorder:
    """Forwards all calls and records them."""

    copier: Copier
    windows: list[tuple[int, int, int]] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        def forward(*arguments: Any) -> Any:
            copies, warmups, _ = window = WINDOWS[name](*arguments)
            self.windows.append(window)
            tails = max(arguments[4]) if name == "both_gated" else 0
            self.queued += [copies + warmups + tails] if name.endswith("gated") else []
            self.modes.append(" ".join([*name.split("_"), *(each for each in arguments[:1] if isinstance(each, str))]))
            return getattr(self.copier, name)(*arguments)

        return forward


@contextmanager
def bench(engine: Engine, plan: CopyPlan, nbytes: int) -> Iterator[tuple[RawCopies, Recorder, Arena]]:
    """A subject with its own memory, and the calls of its copier."""
    arena = Arena(engine, 0, [plan.memory], nbytes, 0)
    with closing(arena), closing(engine.Copier(0, plan.streams)) as copier:
        recorder = Recorder(copier)
        yield make_subject(engine, plan, nbytes, arena, cast("Any", recorder), 0), recorder, arena


GATED = [plan for plan in ONE_WAY if plan.page_locked and plan.mode != "memcpy"]
GATED += [plan for plan in BOTH_WAYS if plan.page_locked]


def label(value: object) -> str:
    return value.key if isinstance(value, CopyPlan) else str(getattr(value, "__name__", value))


@pytest.mark.parametrize("plan", ONE_WAY + BOTH_WAYS, ids=label)
@pytest.mark.parametrize("nbytes", [1, 4 * KIB, 64 * KIB + 3])
def test_every_way_copies_every_byte(engine: Engine, plan: CopyPlan, nbytes: int) -> None:
    with bench(engine, plan, nbytes) as (subject, _, _):
        assert subject.verify(11) == Fact(True)


@pytest.mark.parametrize(
    ("plan", "omitting"),
    [
        *((plan, lambda _: Idle()) for plan in ONE_WAY + BOTH_WAYS),
        *((plan, partial(OneSided, side=side)) for plan in BOTH_WAYS for side in (0, 1)),
        *((plan, OnlyGated) for plan in GATED),
    ],
    ids=label,
)
def test_a_missing_copy_fails_verification(engine: Engine, plan: CopyPlan, omitting: Callable[[Copier], Any]) -> None:
    """Of one way, of one side of both, or of what is issued without a gate."""
    with (
        closing(Arena(engine, 0, [plan.memory], 4 * KIB, 0)) as arena,
        closing(engine.Copier(0, plan.streams)) as copier,
    ):
        subject = make_subject(engine, plan, 4 * KIB, arena, omitting(copier), 0)
        assert subject.verify(11) == Fact(False)


@pytest.mark.parametrize(
    ("plan", "modes"),
    [
        (CopyPlan("h2d", "pageable", "memcpy"), ["drained"]),
        (CopyPlan("h2d", "pinned", "memcpy"), ["drained"]),
        (CopyPlan("h2d", "pageable", "async"), ["on stream async"]),
        (CopyPlan("h2d", "pageable", "streams:2"), ["on stream split"]),
        (CopyPlan("h2d", "pageable", "batch"), ["on stream batch"]),
        (CopyPlan("d2h", "pinned", "async"), ["gated async", "on stream async"]),
        (CopyPlan("d2h", "registered", "streams:2"), ["gated split", "on stream split"]),
        (CopyPlan("d2h", "write-combined", "batch"), ["gated batch", "on stream batch"]),
        (CopyPlan("both", "pageable", "async"), ["both threads"]),
        (CopyPlan("both", "pinned", "async"), ["both gated", "both issued"]),
    ],
    ids=str,
)
def test_only_page_locked_memory_is_copied_behind_a_gate(engine: Engine, plan: CopyPlan, modes: list[str]) -> None:
    with bench(engine, plan, 4 * KIB) as (subject, recorder, _):
        subject.calibrate()
        subject.trial(0)
        assert sorted(set(recorder.modes)) == modes


CALL_S = 2e-3


@pytest.mark.parametrize("plan", GATED, ids=label)
def test_the_callers_time_of_small_copies_contains_their_calls(engine: Engine, plan: CopyPlan) -> None:
    testing.model_link(RATE, 0, RATE, 0)
    testing.model_issue(CALL_S, CALL_S)
    sides: tuple[Side, ...] = ("h2d", "d2h", "sum") if plan.direction == "both" else (plan.direction,)
    with bench(engine, plan, 4 * KIB) as (subject, recorder, _):
        trials = subject.trial(3)
        gated, issued = recorder.windows
        assert gated[0] == issued[0]
        for side in sides:
            assert trials[side].elapsed_s == pytest.approx(4 * KIB / RATE, rel=0.01)  # on the modelled clock
            assert (trials[side].wall_s or 0.0) >= CALL_S
        assert {trial.round for trial in trials.values()} == {3}


@pytest.mark.parametrize(
    ("plan", "has_caller"),
    [
        (CopyPlan("h2d", "pinned", "async"), False),
        (CopyPlan("both", "pinned", "async"), False),
        (CopyPlan("h2d", "pinned", "batch"), True),
        (CopyPlan("h2d", "pinned", "streams:3"), True),
    ],
    ids=str,
)
def test_large_copies_of_many_calls_have_a_callers_time(engine: Engine, plan: CopyPlan, has_caller: bool) -> None:
    with bench(engine, plan, 2 * MIB) as (subject, _, _):
        subject.calibrate()
        assert {trial.wall_s is not None for trial in subject.trial(0).values()} == {has_caller}


def test_a_traced_window_is_its_timed_copies() -> None:
    """Without those before and after it."""
    capture = captures.capture(*(captures.copy(start_us, start_us + 90) for start_us in (0, 100, 200, 300)))
    sample: Any = SimpleNamespace(elapsed_s=1e-4, dispatch_s=2e-5, wall_s=None, copies=2)
    trial = subjects.traced_window(([sample], Usage.so_far(), capture), "h2d", captures.MIB, captures.MIB)
    begin_ns = captures.BEGIN_NS + 100_000
    assert trial.capture.records["start_ns"].tolist() == [begin_ns, begin_ns + 100_000]
    assert (trial.begin_ns, trial.returned_ns, trial.copies) == (begin_ns, begin_ns, 2)
    assert (trial.elapsed_s, trial.dispatch_s, trial.wall_s) == pytest.approx((2e-4, 4e-5, 2e-4))


@pytest.mark.parametrize(("nbytes", "copies"), [(16 * MIB, 2), (MIB, 3)])
def test_a_window_lasts_some_milliseconds(engine: Engine, nbytes: int, copies: int) -> None:
    testing.model_link(RATE, 0, RATE, 0)
    with bench(engine, CopyPlan("h2d", "pinned", "async"), nbytes) as (subject, recorder, _):
        subject.calibrate()
        subject.trial(0)
        chosen = recorder.windows[-1][0]
        assert 2 <= chosen <= copies
        assert chosen == copies or copies * nbytes / RATE >= WINDOW_S


def test_a_window_of_small_copies_fits_into_the_queue(engine: Engine) -> None:
    with bench(engine, CopyPlan("h2d", "pinned", "async"), 4 * KIB) as (subject, recorder, _):
        subject.calibrate()
        trial = subject.trial(0)["h2d"]
        assert trial.copies == recorder.windows[-1][0] == MAX_COPIES
        assert max(recorder.queued) <= MAX_QUEUED


@pytest.mark.parametrize(
    "plan", [CopyPlan("h2d", "pageable", "memcpy"), CopyPlan("d2h", "pageable", "async")], ids=label
)
def test_without_a_gate_a_trial_is_one_copy_with_all_times(engine: Engine, plan: CopyPlan) -> None:
    with bench(engine, plan, 64 * KIB) as (subject, _, _):
        subject.calibrate()
        trial: Any = subject.trial(4)[plan.direction]  # type: ignore[index]
        assert (trial.round, trial.copies) == (4, 1)
        assert 0 < trial.dispatch_s <= trial.wall_s


def test_the_time_of_a_window_is_that_of_one_copy(engine: Engine) -> None:
    testing.model_link(RATE, 20e-6, RATE, 20e-6)
    once_s = 20e-6 + 64 * KIB / RATE
    with bench(engine, CopyPlan("d2h", "pinned", "async"), 64 * KIB) as (subject, _, _):
        subject.calibrate()
        assert subject.trial(0)["d2h"].elapsed_s == pytest.approx(once_s, rel=1e-4)


@pytest.mark.parametrize("plan", [ONE_WAY[1], ONE_WAY[5], ONE_WAY[0], ONE_WAY[2], *BOTH_WAYS[:1]], ids=label)
def test_consecutive_trials_read_different_places_if_there_are_two(engine: Engine, plan: CopyPlan) -> None:
    with bench(engine, plan, MIB) as (subject, recorder, arena):
        assert arena.lane("h2d", plan.memory, MIB).slots == 2
        subject.calibrate()
        recorder.windows.clear()
        for index in range(4):
            subject.trial(index)
        for (copies, warmups, first), (_, _, following) in zip(recorder.windows, recorder.windows[1:], strict=False):
            last = first + warmups + copies - 1
            assert following % 2 != last % 2


def test_the_destination_of_a_fresh_copy_is_untouched(engine: Engine) -> None:
    plan, nbytes = CopyPlan("d2h", "pageable", "memcpy", "fresh"), 64 * KIB
    with bench(engine, plan, nbytes) as (subject, recorder, arena):
        subject.calibrate()
        first, total = arena.pages("pageable")
        received = sent_bytes(nbytes, 0)
        places = max(1, (total - received) // stride_bytes(nbytes))
        ctypes.memset(first, 7, total)
        seen: list[bytes] = []

        def look(lane: object, slot: int) -> object:
            seen.append(ctypes.string_at(first + received + slot % places * stride_bytes(nbytes), nbytes))
            return recorder.copier.drained(cast("Any", lane), slot)

        vars(recorder)["drained"] = look
        for index in range(3):
            subject.trial(index)
        assert seen == [bytes(nbytes)] * 3


def test_the_sum_of_both_ways_adds_the_two_rates(engine: Engine) -> None:
    testing.model_link(2 * RATE, 0, RATE, 0)
    with bench(engine, CopyPlan("both", "pinned", "async"), MIB) as (subject, _, _):
        subject.calibrate()
        trials = subject.trial(3)
        assert set(trials) == {"h2d", "d2h", "sum"}
        rate = {side: (2 if side == "sum" else 1) * MIB / trial.elapsed_s for side, trial in trials.items()}
        assert rate["sum"] == pytest.approx(rate["h2d"] + rate["d2h"])
        assert {trial.round for trial in trials.values()} == {3}


def valid_pair(subject: RawCopies) -> dict[Side, Trial]:
    """A trial whose sides overlapped, which a busy machine may need several attempts for."""
    for index in range(40):
        trials = dict(subject.trial(index))
        if all(trial.invalid is None for trial in trials.values()):
            return trials
    pytest.fail(f"no pair overlapped: {trials}")


@pytest.mark.parametrize("faster", [1.0, 4.0])
@pytest.mark.parametrize("memory", ["pinned", "pageable"])
def test_both_ways_overlap_also_where_one_is_much_faster(engine: Engine, memory: str, faster: float) -> None:
    testing.model_link(faster * RATE / 2, 0, RATE / 2, 0)
    plan = CopyPlan("both", memory, "async")  # type: ignore[arg-type]
    with bench(engine, plan, 256 * KIB) as (subject, _, _):
        subject.calibrate()
        trials = valid_pair(subject)
        assert trials["h2d"].elapsed_s >= 0.95 * 256 * KIB / (faster * RATE / 2)
        assert trials["d2h"].elapsed_s >= 0.95 * 256 * KIB / (RATE / 2)


FOREVER_S = 1e6
DIRECTIONS: tuple[Direction, ...] = ("h2d", "d2h")


@dataclass
class StagedRecorder:
    """Forwards all copies, and records their places and the host's bytes before them."""

    staged_copier: StagedCopier
    place: Callable[[int], tuple[int, int]]
    places: list[int] = field(default_factory=list)
    found: list[bytes] = field(default_factory=list)

    @property
    def made(self) -> object:
        return self.staged_copier.made

    @property
    def moved(self) -> int:
        return self.staged_copier.moved

    def move(self, direction: Direction, host: int, device: int, nbytes: int) -> Bracket:
        self.places.append(host)
        self.found.append(ctypes.string_at(host, nbytes))
        return self.staged_copier.move(direction, host, device, nbytes)

    def wakes(self, nbytes: int) -> bool:
        return self.staged_copier.wakes(nbytes)

    def time(self, lane: Any, slot: int) -> Any:
        host, _ = self.place(slot)
        self.places.append(host)
        self.found.append(ctypes.string_at(host, lane.nbytes))
        return self.staged_copier.time(lane, slot)


@contextmanager
def staged_bench(
    engine: Engine, staged: CopyPlan, nbytes: int, record: type[StagedRecorder] = StagedRecorder
) -> Iterator[tuple[StagedCopies, StagedRecorder]]:
    with (
        closing(Arena(engine, 0, ["pageable"], nbytes, 0)) as arena,
        closing(StagedCopier(engine, 0, CHOSEN, 30.0)) as ring,
    ):
        recorder = record(ring, lambda slot: arena.place(staged.direction, staged.memory, nbytes, slot))
        yield StagedCopies(engine, staged, nbytes, arena, cast("Any", recorder), 0), recorder


def staged(direction: Direction, *, fresh: bool = False) -> CopyPlan:
    return CopyPlan(direction, "pageable", "staged", "fresh" if fresh else "warm")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("nbytes", [1, 4 * KIB, 64 * KIB + 3, MIB - 1])
def test_every_byte_arrives_in_a_trial_with_all_times(engine: Engine, direction: Direction, nbytes: int) -> None:
    trial: Any
    with staged_bench(engine, staged(direction), nbytes) as (subject, recorder):
        assert subject.verify(11) == Fact(True)
        recorder.places.clear()
        ((side, trial),) = subject.trial(4).items()
        assert len(recorder.places) == (2 if recorder.wakes(nbytes) else 1)  # the first wakes the ring's threads
        idle = StagedCopies(engine, staged(direction), nbytes, subject._arena, cast("Any", Idle()), 0)
        assert idle.verify(11) == Fact(False)
    assert (side, trial.round, trial.copies) == (direction, 4, 1)
    assert 0 < trial.dispatch_s <= trial.wall_s


@pytest.mark.parametrize(("below_s", "copies"), [(math.inf, [2, 2, 2]), (1e-9, [2, 1, 1])], ids=["short", "long"])
def test_sleeping_threads_are_woken_before_a_short_trial(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, below_s: float, copies: list[int]
) -> None:
    monkeypatch.setattr(subjects, "WAKE_BELOW_S", below_s)
    with staged_bench(engine, staged("h2d"), MIB) as (subject, recorder):
        found = []
        for index in range(3):
            recorder.places.clear()
            assert len(subject.trial(index)) == 1
            found.append(len(recorder.places))
    assert found == copies


def test_consecutive_trials_read_different_places(engine: Engine) -> None:
    with staged_bench(engine, staged("h2d"), MIB) as (subject, recorder):
        for index in range(4):
            subject.trial(index)
        assert len(set(recorder.places)) == 2
        assert all(one != other for one, other in zip(recorder.places, recorder.places[1:], strict=False))


def test_only_the_destination_of_a_fresh_copy_is_untouched(engine: Engine) -> None:
    nbytes = 64 * KIB
    for fresh in (True, False):
        with staged_bench(engine, staged("d2h", fresh=fresh), nbytes) as (subject, recorder):
            assert subject.verify(11) == Fact(True)
            recorder.found.clear()
            for index in range(3 * subject._lane.slots):
                subject.trial(index)
            again = recorder.found[subject._lane.slots :]  # places that something has been copied to
            assert all(found == bytes(nbytes) for found in again) is fresh


def test_only_the_first_copy_includes_the_creation_of_the_ring(engine: Engine) -> None:
    class SlowlyMade(StagedRecorder):
        made = SimpleNamespace(made_s=FOREVER_S)

    with staged_bench(engine, staged("h2d"), 4 * KIB, SlowlyMade) as (subject, _):
        assert subject.calibrate() >= FOREVER_S
        assert subject.calibrate() < FOREVER_S
