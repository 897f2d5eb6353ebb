"""`pyxfer fleet`: the hosts of a cluster, judged together."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from pyxfer._cli import options as opt
from pyxfer._cli.defaults import Application
from pyxfer._cli.failures import NO_GPU, NOT_VALID, say
from pyxfer.errors import PyxferError, UsageError

if TYPE_CHECKING:
    from pyxfer._cli.output import Exports
    from pyxfer._document.fleets import Fleet

SLOW = 1
LINES = ("npd", "nagios")

_EXAMPLE = opt.example("pyxfer fleet run --hosts node1,node2", "pyxfer fleet judge documents/ --report fleet.html")

app = Application(
    epilog=_EXAMPLE,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Measure all hosts of a cluster, and find the slow ones.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ExportDrain = Annotated[
    str | None, opt.option("--export-drain", "FILE", "Write HOST REASON for each slow host; - is stdout.")
]


@app.command(epilog=opt.example("pyxfer fleet judge documents/", "pyxfer fleet judge node1.json node2.json node3.json"))
def judge(
    files: Annotated[list[str], opt.argument("FILE|FOLDER...", "What pyxfer fleet host has written on each host.")],
    export_json: opt.WholeJson = None,
    export_prometheus: opt.ExportPrometheus = None,
    export_drain: ExportDrain = None,
    report: opt.Report = None,
) -> None:
    """Judge hosts by their documents.

    Each host is compared with those that should be equal to it. A host is called slow only if it was measured again:
    put these documents into a folder named confirmations, beside the others. Exit codes: 0 no host is slow, 1 some are,
    3 no host has a GPU, 4 no host could be judged.
    """
    from pyxfer._fleet.collect import read_confirmations, read_reports
    from pyxfer._fleet.judge import judge as judge_hosts

    exports = fleet_exports(export_json, export_prometheus, export_drain, report)
    deliver_fleet(judge_hosts(read_reports(files), confirmations=read_confirmations(files)), exports)


@app.command(
    epilog=opt.example("pyxfer fleet show fleet.json", "pyxfer fleet show fleet.json --line nagios --host node7")
)
def show(
    file: Annotated[str, opt.argument("FLEET.json", "What --export-json has written; - is stdin.")],
    host: Annotated[str | None, opt.option("--host", "HOST", "With --line: only this host.")] = None,
    line: Annotated[
        str | None,
        opt.option(
            "--line", "npd|nagios", "One line and the exit code for node-problem-detector (0 to 2) or Nagios (0 to 3)."
        ),
    ] = None,
    export_prometheus: opt.ExportPrometheus = None,
    export_drain: ExportDrain = None,
    report: opt.Report = None,
) -> None:
    """Print saved verdicts again.

    The exit code is 0, unless --line asks for one.
    """
    from pyxfer._document.fleets import Fleet

    if line is not None and line not in LINES:
        raise UsageError(f"--line {line!r:.40} is unknown: choose one of {', '.join(LINES)}.")
    if host is not None and line is None:
        raise UsageError("--host needs a line: add --line npd or --line nagios.")
    if line is not None and any((export_prometheus, export_drain, report)):
        raise UsageError("--line prints one line and writes no file: leave it out, or the exports and --report.")
    exports = fleet_exports(None, export_prometheus, export_drain, report)
    place = "/dev/stdin" if file == "-" else file
    if line is None:
        _print(Fleet.load(place), exports)
    else:
        _end_with_line(place, line, host)


def fleet_exports(
    json: str | None,
    prometheus: str | None,
    drain: str | None,
    report: str | None,
    *,
    quiet: bool = False,
) -> Exports[Fleet]:
    from pyxfer._cli.output import Exports, document_json
    from pyxfer._report.fleet_formats import drain_lines, prometheus_text

    texts = ((json, document_json), (prometheus, prometheus_text), (drain, drain_lines))
    return Exports(*texts, report=report, quiet=quiet)


def deliver_fleet(fleet: Fleet, exports: Exports[Fleet], trouble: str = "") -> None:
    """Print the page, write the exports, and exit with the fleet's code. `trouble`: what else was not written."""
    _print(fleet, exports)
    if trouble:
        say(trouble)
    code = code_of(fleet) or (NOT_VALID if trouble else 0)
    if code:
        raise SystemExit(code)


def code_of(fleet: Fleet) -> int:
    if fleet.with_verdict("slow"):
        return SLOW
    if any(host.verdict != "not judged" for host in fleet.hosts):
        return 0
    states = {host.state for host in fleet.hosts} - {"duplicate"}
    return NO_GPU if states == {"no GPU"} else NOT_VALID


def _print(fleet: Fleet, exports: Exports[Fleet]) -> None:
    from pyxfer._report.fleet_formats import can_be_drained

    exports.deliver(fleet)
    nameless = [host.host for host in fleet.with_verdict("slow") if not can_be_drained(host)]
    if nameless:
        say(
            f"{len(nameless)} of the slow hosts cannot be drained, such as {nameless[0]!r:.80}: it names no single"
            " node, or only its document does (name it with --hosts, or its file after it)"
        )


def _end_with_line(file: str, line: str, host: str | None) -> None:
    from pyxfer._document.fleets import Fleet
    from pyxfer._report import fleet_formats

    make = fleet_formats.npd_line if line == "npd" else fleet_formats.nagios_line
    try:
        text, code = make(Fleet.load(file), host)
    except PyxferError as error:  # the usual exit code of an error, 2, says to Nagios that a host is slow
        text, code = fleet_formats.unknown_line(line, str(error))
    sys.stdout.write(f"{text}\n")
    if code:
        raise SystemExit(code)
