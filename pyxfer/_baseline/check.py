"""Is this host still as fast as its baseline: measure, compare, and measure again before anything is called slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timezone

import msgspec

from pyxfer._baseline.cells import cell_of, fingerprint_of, identity, make_fingerprint
from pyxfer._baseline.compare import DEFAULT_TOLERANCE, compare_samples, slow_limit
from pyxfer._baseline.samples import Sample, Series, collect
from pyxfer._baseline.store import Store
from pyxfer._document.baselines import Baseline, Cell, CellComparison, Comparison, Fingerprint, KeptBaseline
from pyxfer._document.runs import Fact, Remark, Run
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._machine.link import read_link
from pyxfer.errors import CudaUnavailableError, MeasurementError, UsageError
from pyxfer.native import HOST, choose

_NO_BASELINE = "A baseline is of a link; --device host makes one of host memory, which says nothing of any link."
_NAMES = {
    "host": "the host's name",
    "gpu": "the GPU",
    "link_kind": "the kind of link",
    "mig": "MIG",
    "confidential": "confidential computing",
    "virtual_machine": "the virtual machine",
    "cpu": "the CPU",
}


def this_machine(device: str) -> tuple[Fingerprint, str]:
    """The machine with this device, and the name by which other processes find that device for certain.

    Raises:
        CudaUnavailableError: no GPU answers, and `device` is not host.
        UsageError: there is no such device.

    """
    try:
        choice = choose(device, require_gpu=device != HOST)
    except CudaUnavailableError as error:
        hint = f"{error.hint} {_NO_BASELINE}".strip()
        raise type(error)(error.code, error.name, error.call, error.where, error.description, hint) from error
    found = find_device(choice.engine, 0 if device == HOST else device)
    fingerprint = make_fingerprint(read_environment(choice.engine, found), found, read_link(choice.engine, found))
    return fingerprint, HOST if device == HOST else found.uuid.value or str(found.index)


def find_baseline(store: Store, name: str, here: Fingerprint) -> Baseline:
    """The current baseline of this name on this machine.

    Raises:
        UsageError: there is none; the text says what the store has instead.

    """
    found = store.baseline(name, identity(here))
    if found is None:
        where = f"{here.host}, {here.gpu.value or here.device}"
        raise UsageError(
            f"the store {store.shown} has no baseline {name!r} of this machine ({where}){_nearest(store, name, here)}; "
            "pyxfer baseline save makes one"
        )
    return found


def _nearest(store: Store, name: str, here: Fingerprint) -> str:
    """What it has that this machine may be taken for: the same GPU, or the same host."""
    kept = store.baselines()
    for alike in (_of_gpu(kept, here), [each for each in kept if each.fingerprint.host == here.host]):
        for each in alike:
            if each.identity == identity(here):
                return f"; it has {each.name!r} of it (--name)"
            return f"; it has {each.name!r} of {each.id}, and there {_what_differs(each.fingerprint, here)}"
    return ""


def _of_gpu(kept: Iterable[KeptBaseline], here: Fingerprint) -> list[KeptBaseline]:
    return [each for each in kept if here.gpu.value is not None and each.fingerprint.gpu.value == here.gpu.value]


def _what_differs(there: Fingerprint, here: Fingerprint) -> str:
    differing = []
    for field, words in _NAMES.items():
        one, other = (_text(getattr(fingerprint, field)) for fingerprint in (there, here))
        if one != other:
            differing.append(f"{words} is {one!r} and not {other!r}")
    return " and ".join(differing) or "something else differs"


def _text(value: object) -> str:
    """What could not be read counts as not there, as it does in the identity."""
    found = value.value if isinstance(value, Fact) else value
    if found is None or isinstance(found, bool):
        return "on" if found else ""
    return str(found)


LEAST_PROCESSES = 3
DEFAULT_RETRIES = 2
NOW = "now"

Measure = Callable[[], Run]
OnRun = Callable[[Run], None]


@dataclass(frozen=True)
class Checked:
    """What a check has found."""

    comparison: Comparison
    runs: tuple[Run, ...]
    interrupted: bool = False

    @property
    def confirmed(self) -> tuple[CellComparison, ...]:
        """The cells that are slower than the baseline beyond any reasonable doubt."""
        return tuple(row for row in self.comparison.cells if row.confirmed)


def check(
    baseline: Baseline,
    measure: Measure,
    *,
    tolerance: float = DEFAULT_TOLERANCE,
    retries: int = DEFAULT_RETRIES,
    on_run: OnRun = lambda run: None,
) -> Checked:
    """Measure until nothing is slow or doubtful any more, or as often as `retries` allow.

    `measure` makes the run of one process, and `on_run` is given each as soon as it is there.

    Raises:
        UsageError: the baseline is none to check against, or of another machine.
        KeyboardInterrupt: `measure` was interrupted before there was anything to compare.

    """
    before = baseline_sample(baseline)
    kept = set(collect(before.runs))
    runs: list[Run] = []
    interrupted = False
    while True:
        run = measure()
        on_run(run)
        interrupted = run.ended == "interrupted"
        _check_machine(baseline, run)
        if not interrupted or not runs:
            runs.append(_only(kept, run))
        comparison = _compare(before, Sample(NOW, tuple(runs)), tolerance, 1 + retries, interrupted)
        if interrupted or len(runs) > retries or not _doubtful(comparison):
            break
    found = _confirm(comparison, before.runs, runs, interrupted)
    remarks = (*found.remarks, *_clock_remarks(baseline, runs[0]))
    return Checked(msgspec.structs.replace(found, remarks=remarks), tuple(runs), interrupted)


def baseline_sample(baseline: Baseline) -> Sample:
    """A baseline as one side of a comparison.

    Raises:
        UsageError: it is of fewer processes than say anything of their spread.

    """
    count = len(baseline.runs)
    if count < LEAST_PROCESSES:
        processes = "one process" if count == 1 else f"{count} processes"
        raise UsageError(
            f"the baseline {baseline.name!r} is of {processes}, which say too little of how far processes lie apart; "
            f"save one of {LEAST_PROCESSES} or more (pyxfer baseline save), or compare the files with pyxfer compare"
        )
    sample = Sample(f"baseline {baseline.name!r}", baseline.runs)
    if sample.distinct() < count:
        raise UsageError(
            f"the baseline {baseline.name!r} holds the same run more than once, so it does not know how far processes "
            "lie apart; save one anew: pyxfer baseline save"
        )
    return sample


def _check_machine(baseline: Baseline, run: Run) -> None:
    if identity(fingerprint_of(run)) != identity(baseline.fingerprint):
        raise UsageError(
            f"the baseline {baseline.name!r} is of another machine or device than was measured now "
            f"({run.environment.host}, {run.device.uuid.value or run.device.name}); save one here: pyxfer baseline save"
        )


def _compare(before: Sample, now: Sample, tolerance: float, looks: int, interrupted: bool) -> Comparison:
    try:
        return compare_samples(before, now, tolerance, looks)
    except UsageError:
        if interrupted:  # before it came to anything that the baseline has
            raise KeyboardInterrupt from None
        raise


def _only(kept: Set[Cell], run: Run) -> Run:
    """The run without what the baseline does not have: modes are asked for by name, for each memory all of them."""
    known = tuple(measurement for measurement in run.measurements if cell_of(measurement) in kept)
    return msgspec.structs.replace(run, measurements=known)


def _doubtful(comparison: Comparison) -> bool:
    """Whether something that the baseline has is slow, cannot be told, or was not measured."""
    return any(row.verdict in ("SLOW", "AMBIGUOUS") and row.a_processes for row in comparison.cells)


def _confirm(comparison: Comparison, before: Sequence[Run], runs: Sequence[Run], interrupted: bool) -> Comparison:
    """Confirmed is what all processes of now together say is slow, and each of them by itself."""
    if interrupted and len(runs) == 1:
        text = "It was interrupted before anything could be measured again, so nothing slow is confirmed."
        return msgspec.structs.replace(comparison, remarks=(*comparison.remarks, Remark("unconfirmed", text)))
    of_a, of_b = collect(before), collect(runs)
    limit = slow_limit(comparison.tolerance)
    cells = tuple(
        msgspec.structs.replace(
            row, confirmed=row.verdict == "SLOW" and _each_slower(of_a[row.cell], of_b[row.cell], limit)
        )
        for row in comparison.cells
    )
    return msgspec.structs.replace(comparison, cells=cells)


def _clock_remarks(baseline: Baseline, run: Run) -> list[Remark]:
    """No verdict depends on the clock, but whoever reads of a baseline from the future should know why."""
    try:
        made, taken = (_moment(text) for text in (baseline.made_at, run.environment.taken_at))
    except ValueError:
        return []
    if made <= taken:
        return []
    made_text, taken_text = baseline.made_at[:19], run.environment.taken_at[:19]
    text = f"The baseline was made at {made_text} by its clock, and now it is {taken_text}: the clock has gone back."
    return [Remark("clock", text, "see the host's time service, such as chronyc tracking")]


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _each_slower(a: Series, b: Series, limit: float) -> bool:
    return all(math.isfinite(log) and log - a.mean_log > limit for log in b.logs)


def check_processes(count: int) -> None:
    """Refuse to make a baseline of too few.

    Raises:
        UsageError: how many it takes, and why.

    """
    if count < LEAST_PROCESSES:
        raise UsageError(
            f"--processes {count}: a baseline takes {LEAST_PROCESSES} or more, because it must know how far "
            "processes lie apart"
        )


def make_baseline(name: str, labels: dict[str, str], runs: Sequence[Run], made_at: str) -> Baseline:
    """The runs of one machine as its baseline.

    Raises:
        UsageError: they are of several machines, or too few.
        MeasurementError: something was measured in none of them.

    """
    check_processes(len(runs))
    Sample(f"baseline {name!r}", tuple(runs)).check()
    if not any(series.n == len(runs) for series in collect(runs).values()):
        raise MeasurementError("no cell was measured in every process, so there is nothing to compare with later")
    return Baseline(name, fingerprint_of(runs[0]), made_at, labels, tuple(runs))
