"""The verbs of baselines: `pyxfer baseline`, `pyxfer compare` and `pyxfer history`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

import pyxfer
from pyxfer._cli import measure_request
from pyxfer._cli import options as opt
from pyxfer._cli.defaults import Application
from pyxfer._cli.failures import INTERRUPTED, NOT_VALID, NotKeptError, say, why_invalid
from pyxfer._cli.output import Exports, document_json, json_text, rescued, write_result
from pyxfer.errors import MeasurementError, PyxferError, StoreError, UsageError
from pyxfer.units import share_of

if TYPE_CHECKING:
    from pyxfer._baseline.measure import Processes as Started
    from pyxfer._baseline.measure import Request
    from pyxfer._baseline.store import Store
    from pyxfer._document.baselines import AnyRun, Baseline, Comparison, Fingerprint, History, KeptBaseline
    from pyxfer._report.layout import Page


What = "A file with a run, links or a baseline, an id of the store (r-..., b-...), or baseline:NAME."


def compare(
    a: Annotated[str, opt.argument("A", What)],
    b: Annotated[str, opt.argument("B", "The measurement to compare with A.")],
    fail_on: Annotated[
        str | None,
        opt.option("--fail-on", "slower:SHARE", "Exit with 1 if a cell is certainly slower by more than SHARE."),
    ] = None,
    tolerance: Tolerance = "3%",
    details: opt.Details = False,
    export_json: opt.WholeJson = None,
    export_md: opt.ExportMd = None,
    export_github: ExportGithub = None,
    export_bencher: ExportBencher = None,
    report: opt.Report = None,
    quiet: opt.Quiet = False,
    store: opt.Store = None,
) -> None:
    """Compare two measurements, cell by cell.

    Each cell is SAME, FAST, SLOW or AMBIGUOUS.

    The page names what to do about slow cells and the differences between the two machines above the table. The exit
    code is 1 only with --fail-on.
    """
    from pyxfer._baseline.compare import certainly_slower, compare_samples
    from pyxfer._baseline.inputs import distinct_names, sample_of

    limit = None if fail_on is None else _limit(fail_on)
    exports = _comparison_exports(export_json, export_md, None, export_github, export_bencher, report, quiet=quiet)
    share = share_of(tolerance, "--tolerance")
    comparison = compare_samples(*distinct_names(sample_of(a, a, store), sample_of(b, b, store)), share)
    exports.deliver(comparison, details=details)
    slower = [] if limit is None else certainly_slower(comparison, limit)
    if slower:
        say(f"cells certainly slower by more than {fail_on.partition(':')[2] if fail_on else ''}: {len(slower)}")
        raise SystemExit(SLOWER)


def _limit(text: str) -> float:
    word, colon, share = text.partition(":")
    if word != "slower" or not colon:
        raise UsageError(f"--fail-on {text!r} is not of the form slower:SHARE: write one such as --fail-on slower:5%.")
    return share_of(share, "--fail-on slower:SHARE")


SLOWER = 1

Tolerance = Annotated[
    str, opt.option("--tolerance", "SHARE", "Share of its bandwidth that a cell may lose, such as 3%.")
]


ExportGithub = Annotated[
    str | None, opt.option("--export-github", "FILE", "Write JSON for github-action-benchmark (customBiggerIsBetter).")
]
ExportBencher = Annotated[str | None, opt.option("--export-bencher", "FILE", "Write Bencher's metric format (JSON).")]


def _comparison_exports(
    json: str | None,
    md: str | None,
    junit: str | None,
    github: str | None,
    bencher: str | None,
    report: str | None,
    *,
    quiet: bool,
) -> Exports[Comparison]:
    from pyxfer._report.comparison import benchmarks, metrics, to_junit

    return Exports(
        (json, document_json),
        (md, lambda comparison: comparison.to_markdown()),
        (junit, lambda comparison: to_junit(comparison).decode()),
        (github, lambda comparison: json_text(benchmarks(comparison))),
        (bencher, lambda comparison: json_text(metrics(comparison))),
        report=report,
        quiet=quiet,
    )


def history(
    host: Host = None,
    cell: Annotated[
        str | None,
        opt.option("--cell", "CELL", "A cell such as h2d:pinned:256MiB; default: pinned at the largest size."),
    ] = None,
    since: Annotated[str | None, opt.option("--since", "TIME", "Start: 30d, 12h or 2w ago, or a date (UTC).")] = None,
    export_json: opt.WholeJson = None,
    export_csv: opt.ExportCsv = None,
    report: opt.Report = None,
    store: opt.Store = None,
) -> None:
    """Show measurements over time.

    Compares each measurement with the median of its own machine.

    Without --host, all hosts of the store are shown; many hosts have one line each.
    """
    from pyxfer._report.kinds import table_of

    exports: Exports[History] = Exports(
        (export_json, json_text), (export_csv, lambda history: table_of(history).to_csv()), report=report
    )
    with pyxfer.open_store(store, create=False) as opened:
        found = opened.history(cell, host=host, since=since)
    exports.deliver(found)


DEFAULT_NAME, LINKS_NAME = "default", "links"

Host = Annotated[str | None, opt.option("--host", "HOST", "Only this host.")]
Which = Annotated[str, opt.argument("NAME", "A name, or an id that the list shows.")]

app = Application(
    rich_markup_mode=None,
    no_args_is_help=True,
    epilog=opt.example("pyxfer baseline save", "pyxfer baseline check"),
    help="Save this host's bandwidth, and check it later.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("list", epilog=opt.example("pyxfer baseline list --host node-7"))
def list_all(host: Host = None, export_json: opt.WholeJson = None, store: opt.Store = None) -> None:
    """List the baselines in the store."""
    from pyxfer._report.baseline import print_baselines

    exports: Exports[object] = Exports((export_json, json_text))
    with pyxfer.open_store(store, create=False) as opened:
        kept = opened.baselines(host)

        def print_page(page: Page) -> None:
            if kept:
                print_baselines(kept, opened.shown, page)
            else:
                of_host = "" if host is None else f" of the host {host!r}"
                say(f"the store {opened.shown} has no baseline{of_host}; pyxfer baseline save makes one")

        exports.deliver({"baselines": kept}, print_page)


@app.command(epilog=opt.example("pyxfer baseline show", "pyxfer baseline show monday --host node-7"))
def show(
    name: Annotated[str, opt.argument("[NAME]", "A name, or an id that the list shows.")] = DEFAULT_NAME,
    host: Host = None,
    export_json: opt.WholeJson = None,
    store: opt.Store = None,
) -> None:
    """Show one baseline: its machine, processes and cells.

    If several hosts have a baseline of that name, this host's is shown; --host or an id selects another.
    """
    from pyxfer._baseline.inputs import choose
    from pyxfer._report.baseline import print_baseline

    exports: Exports[object] = Exports((export_json, json_text))
    with pyxfer.open_store(store, create=False) as opened:
        kept = choose(opened, name, host)
        baseline = opened.baseline_of_id(kept.id)
    exports.deliver(
        {"id": kept.id, "baseline": baseline},
        lambda page: print_baseline(baseline, page, kept),
    )


@app.command(epilog=opt.example("pyxfer baseline remove monday"))
def remove(name: Which, host: Host = None, store: opt.Store = None) -> None:
    """Remove a name from a machine.

    The earlier baselines of that name are removed with it. Their runs stay in the history.
    """
    from pyxfer._baseline.inputs import choose

    with pyxfer.open_store(store, create=False) as opened:
        kept = choose(opened, name, host)
        count = opened.remove_baseline(kept.name, kept.identity)
    what = f"the baseline {kept.name!r} of {kept.fingerprint.machine}"
    say(f"removed {what} ({count} stored); its runs stay in the history")


@app.command(epilog=opt.example("pyxfer baseline export default node-7.json.gz"))
def export(
    name: Which,
    file: Annotated[str, opt.argument("FILE", "File to write; - is stdout.")],
    host: Host = None,
    store: opt.Store = None,
) -> None:
    """Write a baseline with its runs to a file.

    Another store can import it, and pyxfer compare and pyxfer show read it.
    """
    from pyxfer._baseline.inputs import choose
    from pyxfer._document import codec
    from pyxfer._document.files import check_writable, is_stdout

    to_stdout = is_stdout(file)
    if not to_stdout:
        check_writable(file)
    with pyxfer.open_store(store, create=False) as opened:
        kept = choose(opened, name, host)
        baseline = opened.baseline_of_id(kept.id)
    if to_stdout:
        sys.stdout.write(codec.encode(baseline).decode())
    else:
        write_result(file, codec.encode(baseline))
        say(f"wrote {kept.id}, {len(baseline.processes)} runs, to {file!r}")


@app.command("import", epilog=opt.example("pyxfer baseline import node-7.json.gz"))
def import_file(
    file: Annotated[str, opt.argument("FILE", "A file that pyxfer baseline export wrote.")],
    store: opt.Store = None,
) -> None:
    """Import a baseline from a file into the store.

    A baseline that the store already has is not added again.
    """
    from pyxfer._document.baselines import Baseline

    baseline = Baseline.load(file)
    with pyxfer.open_store(store) as opened:
        there = opened.same_baseline(baseline)
        if there is not None:
            say(f"the store {opened.shown} already has this baseline as {there}; nothing was added")
            return
        added = opened.add_baseline(baseline)
        say(f"added {baseline.name!r} of {baseline.fingerprint.host} as {added}, {len(baseline.processes)} runs")


Name = Annotated[
    str | None,
    opt.option("--name", "NAME", "Name of the baseline; default: default, or links with --links."),
]
Processes = Annotated[
    int,
    opt.option(
        "--processes",
        "N",
        "Measuring processes, one after the other: 3 or more, or with --add 1 or more.",
        min=1,
        max=100,
    ),
]


# The defaults: pageable copies also depend on the host's memory, whose speed drifts, on a shared host by more than a
# useful tolerance within minutes (bench/results/compare_one_three.json.gz). A verdict depends on how much processes
# differ, which more trials do not show: the first six trials of page-locked memory lie within 0.1 % of the median of
# hundreds from 16 MiB on, and within 1.4 % at 1 MiB.
def save(
    context: typer.Context,
    name: Name = None,
    processes: Processes = 5,
    add: Annotated[
        bool, typer.Option("--add", help="Append the processes to the current baseline, measured as it was.")
    ] = False,
    label: Annotated[list[str], opt.option("--label", "KEY=VALUE", "A label of the baseline; repeatable.")] = [],  # noqa: B006 - typer copies it
    device: measure_request.Devices = None,
    direction: opt.Directions = "h2d,d2h",
    memory: opt.Memories = "pinned",
    mode: opt.Modes = "auto",
    size: opt.Sizes = "1MiB,16MiB,64MiB",
    budget: opt.Budget = "0.6s",
    links: measure_request.LinksFlag = False,
    group: measure_request.Groups = None,
    engine: measure_request.Engines = None,
    require_gpu: opt.RequireGpu = False,
    quiet: opt.Quiet = False,
    report: opt.Report = None,
    store: opt.Store = None,
) -> None:
    """Measure this host and save it as its baseline.

    Measures in several processes, one after the other, because a check must know how much processes differ. The budget
    applies to each process. With --add they are a further sitting of the current baseline, measured as the baseline
    was, which then also shows how much the host differs from day to day.

    With --links, the links of all GPUs; the budget is then 15s for each GPU, and each copy has the size of its link.
    """
    from pyxfer._baseline import store_tables
    from pyxfer._baseline.check import added_to, check_processes, make_baseline, this_machine
    from pyxfer._baseline.measure import Processes as Started
    from pyxfer._baseline.measure import request_again
    from pyxfer._report.baseline import print_baseline

    if not add:
        check_processes(processes)
    exports: Exports[Baseline] = Exports(report=report, quiet=quiet)
    if name is None:
        name = LINKS_NAME if links else DEFAULT_NAME
    store_tables.check_name(name)
    labels = _parse_labels(label)
    store_tables.check_labels(labels)
    measure_request.check_options(context, links=links, require_gpu=require_gpu)
    asked = (
        measure_request.asked_of_links(context, group, engine, size, budget)
        if links
        else measure_request.asked_of_device(direction, memory, mode, size, budget)
    )
    with Started() as started:
        machine, devices = this_machine(device, links=links)
        before = _before(machine, name, store, add=add)
        request = request_again(devices, before.processes[0]) if before else asked(devices)
        measure = _measuring(started, request, processes, "", lambda count: True, exports)
        runs = _measure_all(measure, processes, lambda: pyxfer.open_store(store), labels)
    made_at = store_tables.now_text()
    baseline = added_to(before, labels, runs, made_at) if before else make_baseline(name, labels, runs, made_at)
    kept = _kept(baseline, store, exports)
    exports.deliver(baseline, lambda page: print_baseline(baseline, page, kept))


def _before(machine: Fingerprint, name: str, store: str | None, *, add: bool) -> Baseline | None:
    from pyxfer._baseline.check import find_baseline
    from pyxfer._baseline.store import check_store

    if not add:
        check_store(store)
        return None
    with pyxfer.open_store(store, create=False) as opened:
        return find_baseline(opened, name, machine)


def _kept(baseline: Baseline, store: str | None, exports: Exports[Baseline]) -> KeptBaseline:
    """The baseline's row in the store. If the store refuses it, it is saved to a file that the error names."""
    from pyxfer._baseline.inputs import choose

    try:
        with pyxfer.open_store(store) as opened:
            kept, shown = choose(opened, opened.add_baseline(baseline), None), opened.shown
    except StoreError as error:
        where = rescued(baseline, "baseline", "pyxfer-baseline-", "pyxfer baseline import")
        raise NotKeptError(f"{where} The store did not take it: {error}") from error
    exports.note(f"saved {kept.id}, the baseline {baseline.name!r} of {baseline.fingerprint.host}, in {shown}")
    return kept


def check(
    context: typer.Context,
    name: Name = None,
    tolerance: Tolerance = "3%",
    retries: Annotated[
        int,
        opt.option(
            "--retries",
            "N",
            "Largest number of repeats before a check fails; with 0 a single process decides.",
            min=0,
            max=20,
        ),
    ] = 19,
    add: Annotated[
        bool, typer.Option("--add", help="If every cell is SAME, append the runs to the baseline, as a later sitting.")
    ] = False,
    details: opt.Details = False,
    export_json: opt.WholeJson = None,
    export_junit: Annotated[str | None, opt.option("--export-junit", "FILE", "Write JUnit XML; - is stdout.")] = None,
    export_github: ExportGithub = None,
    export_bencher: ExportBencher = None,
    report: opt.Report = None,
    device: measure_request.Devices = None,
    links: measure_request.LinksFlag = False,
    require_gpu: opt.RequireGpu = False,
    quiet: opt.Quiet = False,
    store: opt.Store = None,
) -> None:
    """Measure this host and compare it with its baseline.

    Slow and undecided cells are measured again, in up to --retries more processes. The exit code is 1 only if a cell is
    slower by more than the tolerance in all processes together and in most single ones.
    """
    from pyxfer._baseline.check import baseline_sample, find_baseline, this_machine
    from pyxfer._baseline.check import check as check_against
    from pyxfer._baseline.judge import is_look
    from pyxfer._baseline.measure import Processes as Started
    from pyxfer._baseline.measure import request_again

    share = share_of(tolerance, "--tolerance")
    exports = _comparison_exports(export_json, None, export_junit, export_github, export_bencher, report, quiet=quiet)
    name = name or (LINKS_NAME if links else DEFAULT_NAME)
    measure_request.check_options(context, links=links, require_gpu=require_gpu)
    with pyxfer.open_store(store, create=False) as opened, Started() as started:
        machine, devices = this_machine(device, links=links)
        baseline = find_baseline(opened, name, machine)
        request = request_again(devices, baseline_sample(baseline).first)  # raises if the baseline has no runs
        keeper = _Keeper(opened, {"baseline": name})
        measure = _measuring(started, request, 1 + retries, "at most ", lambda count: not is_look(count), exports)
        checked = check_against(baseline, measure, tolerance=share, retries=retries, on_run=keeper.keep)
    exports.deliver(checked.comparison, details=details)
    is_same = checked.comparison.verdict == "SAME" and not checked.interrupted
    if add and is_same and not any(map(why_invalid, checked.runs)):
        _join(baseline, checked.runs, store, exports)
    _end_check(checked.runs, keeper, is_slow=bool(checked.confirmed), interrupted=checked.interrupted)


def _join(before: Baseline, runs: tuple[AnyRun, ...], store: str | None, exports: Exports[Comparison]) -> None:
    from pyxfer._baseline.check import added_to
    from pyxfer._baseline.store_tables import now_text

    try:
        with pyxfer.open_store(store, create=False) as opened:
            kept = opened.add_baseline(added_to(before, {}, runs, now_text()))
    except StoreError as error:
        raise NotKeptError(str(error)) from error
    exports.note(f"added the runs to the baseline {before.name!r}, which is now {kept}")


def _end_check(runs: tuple[AnyRun, ...], keeper: _Keeper, *, is_slow: bool, interrupted: bool) -> None:
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
    """Adds runs to the store. A failure is kept as `trouble`, so that the result is not lost."""

    def __init__(self, store: Store, labels: dict[str, str]) -> None:
        self._store = store
        self._labels = labels
        self._lost: list[str] = []

    def keep(self, run: AnyRun) -> None:
        try:
            self._store.add_run(run, self._labels)
        except StoreError as error:
            self._lost.append(str(error))

    @property
    def trouble(self) -> str:
        """How many runs were not stored, and why; empty if all were."""
        if not self._lost:
            return ""
        return f"the result above is complete, but runs were not stored ({len(self._lost)}): {self._lost[0]}"


def _measure_all(
    measure: Callable[[], AnyRun],
    processes: int,
    opening: Callable[[], AbstractContextManager[Store]],
    labels: dict[str, str],
) -> list[AnyRun]:
    """The runs of all processes. If one fails, the runs so far go into the history."""
    runs: list[AnyRun] = []
    try:
        for _ in range(processes):
            runs.append(measure())
            if runs[-1].ended == "interrupted":
                raise KeyboardInterrupt
            invalid = why_invalid(runs[-1])
            if invalid:
                raise MeasurementError(invalid)
    except (PyxferError, KeyboardInterrupt):
        if runs:
            with opening() as store:
                keeper = _Keeper(store, labels)
                for run in runs:
                    keeper.keep(run)
            say(keeper.trouble or f"no baseline was saved; runs in the history: {len(runs)} of {processes}")
        raise
    return runs


def _measuring(
    started: Started,
    request: Request,
    processes: int,
    at_most: str,
    goes_on: Callable[[int], bool],
    exports: Exports[Any],
) -> Callable[[], AnyRun]:
    """A function that measures in a new process at every call, with a progress bar.

    `goes_on`: whether another process is sure to follow this many, if these are not all.
    """
    from pyxfer._baseline import measure as measuring
    from pyxfer._measure.sampler import Progress

    numbers = iter(range(1, processes + 1))

    def measure() -> AnyRun:
        number = next(numbers)
        phase = f"measuring in process {number} of {at_most}{processes}"
        ready = started.take(more=number < processes and goes_on(number))
        with exports.progress() as report:
            report(Progress(phase, 0.0, ""))
            return measuring.measure_process(
                request,
                lambda waited_s: report(Progress(phase, min(waited_s / (request.budget_s + 2), 0.99), "")),
                ready,
            )

    return measure


def _parse_labels(texts: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for given in texts:
        name, sign, value = given.partition("=")
        if not sign or not name:
            raise UsageError(f"--label {given!r:.80} is not KEY=VALUE: write a label such as --label slot=3.")
        if name in labels:
            raise UsageError(f"--label {name!r:.80} is given twice: give it once.")
        labels[name] = value
    return labels
