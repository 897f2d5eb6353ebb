"""Making baselines, finding the baseline of this machine, and checking the machine against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter

import msgspec

from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.fingerprints import fingerprint_of, fingerprint_of_links, identity, make_fingerprint
from pyxfer._baseline.judge import DEFAULT_TOLERANCE, POWER, Plan, is_look, is_settled
from pyxfer._baseline.samples import Sample, collect
from pyxfer._baseline.store import Store
from pyxfer._document.baselines import AnyRun, Baseline, CellComparison, Comparison, Fingerprint, KeptBaseline
from pyxfer._document.cells import Cell, cell_of
from pyxfer._document.links import Links
from pyxfer._document.machines import Fact, Remark
from pyxfer._machine.devices import find_device, list_devices
from pyxfer._machine.environment import read_environment
from pyxfer._machine.link import read_link
from pyxfer.errors import CudaUnavailableError, MeasurementError, UsageError
from pyxfer.native import HOST, Choice, choose, is_host_name
from pyxfer.units import format_percent

MIN_PROCESSES = 3
DEFAULT_PROCESSES = 5
DEFAULT_RETRIES = 19
NOW = "now"

Measure = Callable[[], AnyRun]
OnRun = Callable[[AnyRun], None]

_NO_BASELINE = "A baseline describes a link; one of host memory (--device host) does not."
_NAMES = {
    "host": "the host's name",
    "gpu": "the GPU",
    "link_kind": "the kind of link",
    "mig": "MIG",
    "confidential": "confidential computing",
    "virtual_machine": "the virtual machine",
    "cpu": "the CPU",
    "gpus": "the list of GPUs",
}


def this_machine(devices: str | None, *, links: bool = False) -> tuple[Fingerprint, tuple[str, ...]]:
    """The machine with these devices, and the names by which other processes find them.

    By default the first device, or with `links` all of them.
    """
    if devices is not None and is_host_name(devices):
        engine = choose(HOST).engine
        found, names = [find_device(engine, 0)], [HOST]
    else:
        engine = _choose_gpu().engine
        named = [find_device(engine, name.strip()) for name in (devices or "0").split(",")]
        found = sorted(list_devices(engine) if links and devices is None else named, key=lambda device: device.index)
        names = [device.uuid.value or str(device.index) for device in found]
    environment = read_environment(engine, found[0])
    pairs = [(device, read_link(engine, device)) for device in found]
    fingerprint = fingerprint_of_links(environment, pairs) if links else make_fingerprint(environment, *pairs[0])
    return fingerprint, tuple(names)


def _choose_gpu() -> Choice:
    try:
        return choose(require_gpu=True)
    except CudaUnavailableError as error:
        hint = f"{error.hint} {_NO_BASELINE}".strip()
        raise type(error)(error.code, error.name, error.call, error.where, error.description, hint) from error


def find_baseline(store: Store, name: str, machine: Fingerprint) -> Baseline:
    found = store.baseline(name, identity(machine))
    if found is None:
        raise UsageError(
            f"The store {store.shown} has no baseline {name!r} of this machine ({machine.machine})"
            f"{_nearest(store.baselines(), machine)}: make one with pyxfer baseline save."
        )
    return found


def _nearest(kept: Iterable[KeptBaseline], machine: Fingerprint) -> str:
    """A baseline of the same GPU, or else of the same host, and how its machine differs from this one."""
    like = [row for row in kept if bool(row.fingerprint.gpus) == bool(machine.gpus)]
    alike = [
        *(row for row in like if machine.gpu.value is not None and row.fingerprint.gpu.value == machine.gpu.value),
        *(row for row in like if row.fingerprint.host == machine.host),
    ]
    if not alike:
        return ""
    nearest = alike[0]
    if nearest.identity == identity(machine):
        return f"; it has {nearest.name!r} of this machine (--name)"
    return f"; it has {nearest.name!r} of {nearest.id}, where {_what_differs(nearest.fingerprint, machine)}"


def _what_differs(there: Fingerprint, here: Fingerprint) -> str:
    differing = []
    for field, words in _NAMES.items():
        one, other = (_text(getattr(fingerprint, field)) for fingerprint in (there, here))
        if one != other:
            differing.append(f"{words} is {one!r} and not {other!r}")
    return " and ".join(differing) or "something else differs"


def _text(value: object) -> str:
    """A value that could not be read counts as absent, as it does in the identity."""
    found = value.value if isinstance(value, Fact) else value
    if found is None or isinstance(found, bool):
        return "on" if found else ""
    if isinstance(found, dict):
        return ", ".join(f"{number}: {gpu}" for number, gpu in found.items())
    return str(found)


@dataclass(frozen=True)
class Checked:
    comparison: Comparison
    runs: tuple[AnyRun, ...]
    interrupted: bool

    @property
    def confirmed(self) -> tuple[CellComparison, ...]:
        return tuple(row for row in self.comparison.cells if row.confirmed)


def check(
    baseline: Baseline,
    measure: Measure,
    *,
    tolerance: float = DEFAULT_TOLERANCE,
    retries: int = DEFAULT_RETRIES,
    on_run: OnRun = lambda run: None,
) -> Checked:
    """Measure until every cell is SAME, FAST or certainly SLOW, or 1 + `retries` processes have measured.

    The number of processes doubles from look to look.

    `measure` returns the run of one process; `on_run` receives each run as soon as it is measured.
    """
    before = baseline_sample(baseline)
    kept = set(collect(before.runs))
    runs: list[AnyRun] = []
    while True:
        run = measure()
        on_run(run)
        interrupted = run.ended == "interrupted"
        _check_machine(baseline, run)
        if not interrupted or not runs:
            runs.append(_with_cells(kept, run))
        count = len(runs)
        plan = Plan(1 + retries, is_last=interrupted or count > retries)
        if not plan.is_last and not is_look(count):
            continue
        found = _compare(before, Sample(NOW, tuple(runs)), tolerance, plan, interrupted)
        of_baseline = ((row.verdict, row.confirmed) for row in found.cells if row.a_processes)
        if plan.is_last or is_settled(of_baseline, count):
            break
    remarks = (*found.remarks, *_least_loss_remarks(found))
    return Checked(msgspec.structs.replace(found, remarks=remarks), tuple(runs), interrupted)


def baseline_sample(baseline: Baseline) -> Sample:
    count = len(baseline.processes)
    if count < MIN_PROCESSES:
        processes = "one process" if count == 1 else f"{count} processes"
        raise UsageError(
            f"The baseline {baseline.name!r} is of {processes}, too few to estimate how much processes differ: save "
            f"one of {MIN_PROCESSES} or more (pyxfer baseline save), or compare the files with pyxfer compare."
        )
    sample = Sample.of(baseline)
    sample.check()
    return sample


def _check_machine(baseline: Baseline, run: AnyRun) -> None:
    measured = fingerprint_of(run)
    if identity(measured) != identity(baseline.fingerprint):
        raise UsageError(
            f"The baseline {baseline.name!r} is of another machine or device than the measured one "
            f"({measured.machine}): save one here with pyxfer baseline save."
        )


def _compare(before: Sample, now: Sample, tolerance: float, plan: Plan, interrupted: bool) -> Comparison:
    try:
        found = compare_samples(before, now, tolerance, plan)
    except UsageError:
        if interrupted:  # before any cell of the baseline was measured
            raise KeyboardInterrupt from None
        raise
    if not interrupted or len(now.runs) > 1:
        return found
    text = "The check was interrupted before it could measure again, so no SLOW cell is confirmed."
    cells = tuple(msgspec.structs.replace(row, confirmed=False) for row in found.cells)
    return msgspec.structs.replace(found, cells=cells, remarks=(*found.remarks, Remark("unconfirmed", text)))


def _with_cells(kept: Set[Cell], run: AnyRun) -> AnyRun:
    """The run with the cells of the baseline only: modes given by name are measured for every memory."""
    if isinstance(run, Links):
        return run
    known = tuple(measurement for measurement in run.measurements if cell_of(measurement) in kept)
    # Curves and the costs of page-locking are of all rows.
    return msgspec.structs.replace(run, measurements=known, curves=(), locking=())


def _least_loss_remarks(comparison: Comparison) -> list[Remark]:
    found = [(row.least_loss, row.text) for row in comparison.cells if row.least_loss is not None]
    if not found:
        return []
    (least, of_least), (most, of_most) = (pick(found, key=itemgetter(0)) for pick in (min, max))
    text = f"A loss of {format_percent(least)} in one cell would have been found in {POWER * 100:.0f} of 100 checks"
    if most != least:
        text = f"{text} ({of_least}), and one of {format_percent(most)} in {of_most}"
    return [Remark("least-loss", f"{text}.")]


def check_processes(count: int) -> None:
    if count < MIN_PROCESSES:
        raise UsageError(
            f"--processes {count} is too few: give {MIN_PROCESSES} or more, because a baseline must show how much "
            "processes differ."
        )


def added_to(before: Baseline, labels: dict[str, str], runs: Sequence[AnyRun], made_at: str) -> Baseline:
    for run in runs:
        _check_machine(before, run)
    kept = set(collect(before.processes))
    added = (_with_cells(kept, run) for run in runs)
    return make_baseline(before.name, {**before.labels, **labels}, (*before.processes, *added), made_at)


def make_baseline(name: str, labels: dict[str, str], runs: Sequence[AnyRun], made_at: str) -> Baseline:
    check_processes(len(runs))
    Sample(f"baseline {name!r}", tuple(runs)).check()
    if not any(series.n == len(runs) for series in collect(runs).values()):
        raise MeasurementError("No cell was measured in every process, so there is nothing to compare with later.")
    return Baseline.of_processes(name, fingerprint_of(runs[0]), made_at, labels, runs)
