"""The stages of a measurement: every item is prepared, timed in rounds beside the others, and traced."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pyxfer._ceiling.plans import CopyPlan, Limits
from pyxfer._ceiling.resources import RunResources
from pyxfer._ceiling.rows import Item, best_trials, candidate, page_locked_trials
from pyxfer._ceiling.subjects import RawCopies, StagedCopies, make_subject
from pyxfer._document.machines import Environment, Fact, Remark, unknown
from pyxfer._document.runs import LEFT_OUT, NOT_ASKED, Tracing
from pyxfer._machine.nvml import throttled_by
from pyxfer._measure.run import SaveNowAndThen, own_failure
from pyxfer._measure.sampler import FEWEST_ROUNDS, MAX_ROUNDS, Group, OnProgress, Progress, Reserve, Sampler
from pyxfer._trace import traced_trials
from pyxfer.errors import CancelledError
from pyxfer.units import format_seconds, format_size

# A run takes at most 10 s more than its budget. Preparation may use half of these, six trials each and the least traced
# ones end two seconds later. Starting the command, releasing memory, writing and printing took up to 2.5 s on two cores
# that ran six other programs.
PREPARING_S = 5.0
MEASURING_S = 7.0


@dataclass
class Stages:
    """Prepares items, times them in shared rounds, and then traces a few trials of each. Use it once.

    `prepare_item` is given an available item and its number; it sets the item's subject, or the reason why it has
    none. Items with the same `group_key` run in the same rounds; groups run in the order of their keys. `save` is
    called every few seconds between rounds, and before the first traced trial. `traced_sizes`: None is all.
    `few_rounds`, `spared`: as in `Sampler`.
    """

    resources: RunResources
    limits: Limits
    items: Sequence[Item[Any]]
    prepare_item: Callable[[Item[Any], int], None]
    on_progress: OnProgress
    save: Callable[[], None]
    on_tracing: Callable[[Fact[Tracing]], None]
    group_key: Callable[[Item[Any]], tuple[int, ...]] = lambda item: (item.nbytes,)
    most_rounds: int = MAX_ROUNDS
    traced_sizes: Collection[int] | None = None
    few_rounds: int = FEWEST_ROUNDS
    spared: Collection[str] = ()

    def __post_init__(self) -> None:
        self._save_now_and_then = SaveNowAndThen(self.save)
        self.dropped: set[int] = set()
        self.missing_s = 0.0

    def leave_out(self, items: Iterable[Item[Any]]) -> None:
        for item in items:
            item.unavailable = item.unavailable or LEFT_OUT
            self.dropped.add(item.nbytes)

    def prepare(self, deadline_s: float = math.inf) -> None:
        """Prepare all items, or small ones first and none after the deadline; `dropped` has what is left out."""
        latest_s = self._latest_s(deadline_s + PREPARING_S)
        is_prepared = False
        for number, item in sorted(enumerate(self.items), key=lambda each: each[1].nbytes):
            if self.resources.cancelled():
                raise CancelledError("the measurement was asked to end")
            if item.unavailable is None and is_prepared and time.perf_counter() > latest_s:
                self.leave_out([item])
            elif item.unavailable is None:
                text = f"verifying {item.head.route} {item.head.direction} {format_size(item.nbytes)}"
                self.on_progress(Progress("preparing", number / len(self.items), text))
                self.prepare_item(item, number)
                is_prepared = True

    def calibrate_again(self) -> None:
        """Choose the windows of raw copies again: other programs may have been busy while they were prepared."""
        for item in self.items:
            if isinstance(item.subject, RawCopies):
                with own_failure(item.give_up):
                    item.subject.calibrate()

    def measure(self, deadline_s: float) -> None:
        limits = self.limits
        most_s = traced_trials.MAX_SHARE * limits.budget_s
        reserve = Reserve(traced_trials.TRIALS, traced_trials.OPENING_S, traced_trials.TAKING_S, most_s)
        prepared = sorted((item for item in self.items if item.subject is not None), key=self.group_key)
        groups = [make_group(list(items), self.most_rounds) for _, items in groupby(prepared, self.group_key)]
        Sampler(
            groups=groups,
            precision=limits.precision,
            deadline_s=deadline_s,
            seed=limits.seed,
            cancelled=self.resources.cancelled,
            on_progress=self.on_progress,
            on_turn=self._save_now_and_then,
            reserve=reserve if limits.trace else Reserve(),
            few_rounds=self.few_rounds,
            spared=self.spared,
            latest_s=self._latest_s(deadline_s + MEASURING_S),
        ).run()
        dropped = [group for group in groups if group.dropped]
        left_out = {id(series) for group in dropped for series in group.series}
        self.dropped |= {item.nbytes for item in self.items if id(item.series) in left_out}
        self.missing_s = sum((FEWEST_ROUNDS - group.rounds) * group.round_s for group in dropped)
        self._trace(traced_trials.seconds_for(limits.budget_s, deadline_s), self._latest_s(deadline_s + MEASURING_S))

    def _latest_s(self, end_s: float) -> float:
        return math.inf if self.limits.complete else end_s

    def _trace(self, seconds: float, latest_s: float) -> None:
        limits, items = self.limits, self.items
        best, locked = best_trials(items), page_locked_trials(items)
        candidates = []
        for number, item in enumerate(items):
            if limits.trace and (self.traced_sizes is None or item.nbytes in self.traced_sizes):
                ceilings = locked if item.head.staged else best
                candidates.append(candidate(item, ceilings, limits.seed + 2 * number, limits.explained))
            else:
                item.untraced(NOT_ASKED, failed=False)
        if not limits.trace:
            self.on_tracing(unknown(NOT_ASKED))
            return
        self.save()  # a tracer may crash the process
        self.on_progress(Progress("tracing", 1.0, ""))
        traced_trials.trace_candidates(
            self.resources.engine,
            self.resources.device,
            candidates,
            seconds=seconds,
            latest_s=latest_s,
            seed=limits.seed,
            cancelled=self.resources.cancelled,
            on_start=self.on_tracing,
            on_round=lambda number: self.on_progress(
                Progress("tracing", 1.0, f"round {number + 1} of {traced_trials.TRIALS}")
            ),
        )


def make_group(items: Sequence[Item[Any]], most_rounds: int = MAX_ROUNDS) -> Group:
    group = Group.of(format_size(items[0].nbytes), [item.subject for item in items], most_rounds)
    for item, series in zip(items, group.series, strict=True):
        item.series = series
    return group


def prepare_raw(item: Item[CopyPlan], resources: RunResources, seed: int) -> None:
    """Set up, calibrate and verify a raw copy; its own failure becomes the reason in its row."""
    plan, nbytes, engine, device = item.head.source, item.nbytes, resources.engine, resources.device
    with own_failure(item.give_up):
        subject: RawCopies
        if plan.staged:
            subject = StagedCopies(engine, plan, nbytes, resources.arena, resources.staged_copier(), device)
        else:
            subject = make_subject(engine, plan, nbytes, resources.arena, resources.copier(plan.streams), device)
        item.first_s = Fact(subject.calibrate())
        item.verified = subject.verify(seed)
        item.subject = subject


def circumstances(met: Collection[int], before: Environment, after: Environment | None) -> list[Remark]:
    remarks = []
    if met:
        who = ", ".join(map(str, sorted(met)))
        text = f"Another pyxfer measured this device at the same time (process {who}), so figures may be low."
        remarks.append(Remark("contended", text, "measure again when it has ended"))
    if others := before.other_gpu_processes.value:
        who = ", ".join(map(str, others))
        text = f"Other processes use this GPU (process {who}); while they copy or compute, figures are lower."
        remarks.append(Remark("shared", text, "end them, or measure when they are idle"))
    if reasons := throttled_by(before) or throttled_by(after):
        text = f"The GPU's clocks were held down: {', '.join(reasons)}."
        fix = "see nvidia-smi -q -d PERFORMANCE, and measure again when it is cool and has its power"
        remarks.append(Remark("throttled", text, fix))
    return remarks


def late(prepared_s: float, budget_s: float) -> Remark:
    times = f"Preparation took {format_seconds(prepared_s)}, and the budget is {format_seconds(budget_s)}"
    text = f"{times}, so no row has more than the {FEWEST_ROUNDS} trials that each gets."
    return Remark("late", text, f"choose smaller sizes, or give a budget of {math.ceil(3 * prepared_s)}s")


_SIZES_NAMED = 4


def too_long(sizes: Iterable[int], missing_s: float, budget_s: float) -> Remark:
    """`missing_s`: the time that the fewest trials of these sizes would have taken, if it is known."""
    known = sorted(sizes)
    names = ", ".join(map(format_size, known))
    if len(known) > _SIZES_NAMED:
        names = f"{len(known)} sizes from {format_size(known[0])} to {format_size(known[-1])}"
    more = f", in about {math.ceil(missing_s)} s more" if missing_s else ""
    text = f"The budget of {format_seconds(budget_s)} was too short for {names}: these have few trials or none."
    return Remark("late", text, f"choose fewer sizes, or measure all of them{more}: --complete")
