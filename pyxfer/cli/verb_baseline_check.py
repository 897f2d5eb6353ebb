"""`pyxfer baseline save` and `check`: what this host reaches, kept, and whether it still does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pyxfer.errors import MeasurementError, PyxferError, StoreError, UsageError

from . import options as opt
from .comparisons import SLOWER, Outlet, Output, Tolerance
from .failures import NOT_VALID, say, why_invalid
from .interrupts import INTERRUPTED
from .verb_baseline import DEFAULT_NAME, Url

if TYPE_CHECKING:
    from pyxfer.baselines.measuring import Order
    from pyxfer.baselines.store import Store
    from pyxfer.model import Run
    from pyxfer.model_baselines import Baseline

_FORMS = ("table", "json", "junit")

Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Which baseline of this host, if it has several.")]
Processes = Annotated[int, typer.Option("--processes", metavar="N", max=100, help="How many measure, one by one.")]
Labels = Annotated[list[str], typer.Option("--label", metavar="K=V", help="Something to remember; may be repeated.")]
Retries = Annotated[
    int,
    typer.Option(
        "--retries",
        metavar="N",
        min=0,
        max=20,
        help="How often it is measured again before it fails; with 0 one process decides.",
    ),
]


def save(
    name: Name = DEFAULT_NAME,
    processes: Processes = 3,
    label: Labels = [],  # noqa: B006 - typer copies it
    device: opt.Device = "0",
    direction: opt.Directions = "h2d,d2h",
    memory: opt.Memories = "pinned",
    mode: opt.Modes = "auto",
    sizes: opt.Sizes = "1MiB,16MiB,256MiB",
    budget: opt.Budget = "5s",
    require_gpu: opt.RequireGpu = False,
    store: Url = None,
) -> None:
    """Measure this host in several processes, and keep that as its baseline.

    Several, because a later check must know how far processes lie apart. The budget is that of each.
    """
    from pyxfer.baselines.checking import check_processes, make_baseline
    from pyxfer.baselines.here import this_machine
    from pyxfer.baselines.measuring import Order
    from pyxfer.baselines.store import limits, open_store
    from pyxfer.units import parse_duration, parse_sizes

    check_processes(processes)
    limits.check_name(name)
    labels = limits.parse_labels(label)
    asked = Order(
        device,
        opt.split_list(direction, "--direction"),
        opt.split_list(memory, "--memory"),
        opt.split_list(mode, "--mode"),
        ",".join(map(str, parse_sizes(sizes))),
        parse_duration(budget),
    )
    _check_required(device, require_gpu)
    order = replace(asked, device=this_machine(device)[1])
    with open_store(store) as opened:
        runs = _measure_all(order, processes, opened, labels)
        baseline = make_baseline(name, labels, runs, limits.now_text())
        try:
            kept = opened.add_baseline(baseline)
        except StoreError as error:
            raise StoreError(f"{error}; {_rescued(baseline)}") from error
        say(f"kept {kept}, the baseline {name!r} of {baseline.fingerprint.host}, in {opened.shown}")
    _print_baseline(kept, store)


def check(
    name: Name = DEFAULT_NAME,
    tolerance: Tolerance = "3%",
    retries: Retries = 2,
    form: Annotated[str, typer.Option("--format", metavar="table|json|junit", help="How it is told.")] = "table",
    output: Output = None,
    device: opt.Device = "0",
    require_gpu: opt.RequireGpu = False,
    store: Url = None,
) -> None:
    """Measure this host again, and hold it against its baseline.

    What comes out slow or doubtful is measured again, in as many processes as --retries says. Exit code 1 means that
    something is slower than the tolerance in all of them together and in each by itself; nothing else ends with it.
    """
    from pyxfer.baselines.checking import baseline_sample
    from pyxfer.baselines.checking import check as check_against
    from pyxfer.baselines.here import find_baseline, this_machine
    from pyxfer.baselines.measuring import Order
    from pyxfer.baselines.store import open_store
    from pyxfer.units import parse_ratio

    share, outlet = parse_ratio(tolerance), Outlet(form, output, _FORMS)
    _check_required(device, require_gpu)
    fingerprint, found = this_machine(device)
    with open_store(store, create=False) as opened:
        baseline = find_baseline(opened, name, fingerprint)
        order = Order.again(found, baseline_sample(baseline).first)  # one without runs is refused
        keeper = _Keeper(opened, {"baseline": name})
        checked = check_against(
            baseline, _measuring(order, 1 + retries, "at most "), tolerance=share, retries=retries, on_run=keeper.keep
        )
    outlet.deliver(checked.comparison)
    _end_check(checked.runs, keeper, is_slow=bool(checked.confirmed), interrupted=checked.interrupted)


def _end_check(runs: tuple[Run, ...], keeper: _Keeper, *, is_slow: bool, interrupted: bool) -> None:
    """The result has been told; what else must be known, and the exit code."""
    if keeper.trouble:
        say(keeper.trouble)
    invalid = next(filter(None, (why_invalid(run) for run in runs)), "")
    if invalid:
        say(invalid)
        raise SystemExit(NOT_VALID)
    if interrupted:
        say("interrupted")
        raise SystemExit(INTERRUPTED)
    if is_slow:
        raise SystemExit(SLOWER)
    if keeper.trouble:
        raise SystemExit(NOT_VALID)


class _Keeper:
    """Puts every run into the store; one that takes none is no reason to lose the result."""

    def __init__(self, store: Store, labels: dict[str, str]) -> None:
        self._store = store
        self._labels = labels
        self._lost: list[str] = []

    def keep(self, run: Run) -> None:
        """Now, and whatever comes of it is told at the end."""
        try:
            self._store.add_run(run, self._labels)
        except StoreError as error:
            self._lost.append(str(error))

    @property
    def trouble(self) -> str:
        """What was not stored, and why; nothing where all was."""
        if not self._lost:
            return ""
        runs = "1 run was" if len(self._lost) == 1 else f"{len(self._lost)} runs were"
        return f"{runs} not stored, and the result above is of them all the same: {self._lost[0]}"


def _measure_all(order: Order, processes: int, store: Store, labels: dict[str, str]) -> list[Run]:
    """The runs of all processes; if one does not come to its end, what there is goes into the history."""
    measure = _measuring(order, processes, "")
    runs: list[Run] = []
    try:
        for _ in range(processes):
            runs.append(measure())
            if runs[-1].ended == "interrupted":
                raise KeyboardInterrupt
            invalid = why_invalid(runs[-1])
            if invalid:
                raise MeasurementError(invalid)
    except (PyxferError, KeyboardInterrupt):
        keeper = _Keeper(store, labels)
        for run in runs:
            keeper.keep(run)
        if runs:
            are = "is" if len(runs) == 1 else "are"
            say(keeper.trouble or f"{len(runs)} of {processes} runs {are} in the history, and no baseline was made")
        raise
    return runs


def _measuring(order: Order, processes: int, at_most: str) -> Callable[[], Run]:
    """Measure in a process of its own, one after the other, and tell of it."""
    from pyxfer.baselines.measuring import measure_process
    from pyxfer.sampling.progress import Progress

    from .progress import ProgressReport

    numbers = iter(range(1, processes + 1))

    def measure() -> Run:
        phase = f"measuring in process {next(numbers)} of {at_most}{processes}"
        with ProgressReport() as report:
            report(Progress(phase, 0.0, ""))
            return measure_process(
                order, lambda waited_s: report(Progress(phase, min(waited_s / (order.budget_s + 2), 0.99), ""))
            )

    return measure


def _check_required(device: str, require_gpu: bool) -> None:
    if require_gpu and device == "host":
        raise UsageError(
            "--device host asks for the host's memory, and --require-gpu for a GPU: leave one of the two out"
        )


def _rescued(baseline: Baseline) -> str:
    """A file that has what the store would not take."""
    from pyxfer import baseline_documents

    handle, path = tempfile.mkstemp(prefix="pyxfer-baseline-", suffix=".json")
    os.close(handle)
    try:
        baseline_documents.save(baseline, path)
    except PyxferError:
        os.unlink(path)
        return "what was measured could not be written to a file either"
    return f"what was measured is in {path}: pyxfer baseline import {path}"


def _print_baseline(kept: str, store: str | None) -> None:
    from .verb_baseline import show

    show(kept, store=store)
