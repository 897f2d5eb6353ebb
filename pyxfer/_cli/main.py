"""The command `pyxfer`: the application with all of its verbs, and the short verbs themselves."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from pyxfer import units
from pyxfer._cli import options as opt
from pyxfer._cli.baseline import app as baseline
from pyxfer._cli.baseline import check, compare, history, save
from pyxfer._cli.defaults import Application, WithDefaults, is_given
from pyxfer._cli.failures import (
    INTERRUPTED,
    NOT_VALID,
    USAGE,
    as_exit_codes,
    exit_at_once_if_stuck,
    prepare_streams,
    say,
)
from pyxfer._cli.fleet import app as fleet
from pyxfer._cli.fleet_host import host as fleet_host
from pyxfer._cli.fleet_run import run as fleet_run
from pyxfer._cli.measure import blocks, ceiling, doctor, explain, files, frameworks, links, tune
from pyxfer._cli.metrics import metrics
from pyxfer._cli.options import example as _example
from pyxfer._cli.output import Exports, announce_runtime, json_text, measure_and_deliver, run_exports, write_result
from pyxfer._cli.plan import plan
from pyxfer._cli.watch import watch
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._document.runs import Run

# --- verbs -----------------------------------------------------------------------------------------------------------

# The largest size reaches the ceiling within 0.2 %; the smallest shows the cost of a single call.
_SIZES = "4KiB,1MiB,64MiB"
_BUDGET = "5s"


def info(export_json: opt.WholeJson = None) -> None:
    """Show devices, their links and this machine.

    Nothing is measured.
    """
    from pyxfer._machine import devices, environment, link, numa
    from pyxfer._report.host import print_machine
    from pyxfer._upload import tuning

    exports: Exports[object] = Exports((export_json, json_text))
    engine = announce_runtime(0).engine
    found = devices.list_devices(engine)
    links = tuple(link.read_link(engine, device) for device in found)
    surroundings = environment.read_environment(engine, found[0])
    placements = []
    for device in found:
        with numa.bind(engine, numa.device_node(device)) as placement:
            placements.append(placement)
    rings = [
        tuning.state_of(tuning.settings_for(engine, device.index, may_tune=False), device.index) for device in found
    ]
    whole = {
        "devices": found,
        "links": links,
        "placements": placements,
        "rings": rings,
        "environment": surroundings,
    }
    exports.deliver(whole, lambda page: print_machine(found, links, placements, rings, surroundings, page))


_STDIN = "/dev/stdin"


def show(
    file: Annotated[str, opt.argument("FILE", "A file that pyxfer saved, also as .gz; - is stdin.")],
    details: opt.Details = False,
    export_csv: opt.ExportCsv = None,
    export_md: opt.ExportMd = None,
) -> None:
    """Print a saved document.

    Prints a run, links, watch, examination, baseline, comparison, pytest session, host, fleet or plan again.
    """
    from pyxfer._document import codec
    from pyxfer._report.kinds import table_of, to_markdown

    exports: Exports[Any] = Exports(
        (export_csv, lambda document: table_of(document).to_csv()),
        (export_md, to_markdown),
    )
    exports.deliver(codec.load(_STDIN if file == "-" else file), details=details)


def report_verb(
    files: Annotated[list[str], opt.argument("FILE...", "Files that pyxfer saved, also as .gz; their order is kept.")],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Write a page (.html), or pictures (.svg or .png)."),
    ] = "report.html",
    chart: Annotated[
        str | None,
        opt.option("--chart", "NAME", "Draw only this chart, such as sizes."),
    ] = None,
) -> None:
    """Write saved documents as one page with charts.

    Takes a run, links, a watch, examination, baseline, comparison, fleet, document of a host, pytest session or plan,
    or several of them. The page is a single file that needs no network: a sentence about each document, its charts,
    tables, environment and remarks, and the document itself.
    """
    from pyxfer._document import codec
    from pyxfer._document import files as document_files
    from pyxfer._report.webpage import check_drawing, report_bytes, suffix_of

    suffix = suffix_of(output)
    check_drawing()
    document_files.check_writable(output)
    documents: list[Any] = [codec.load(file) for file in files]
    write_result(output, report_bytes(documents, suffix, chart))
    say(f"wrote {output!r}")


def list_all(
    what: Annotated[
        str | None,
        opt.argument("[routes]", "With routes: every route of every framework."),
    ] = None,
    export_json: opt.WholeJson = None,
) -> None:
    """List devices, routes and modes.

    Shows the reason for each one that is not available.
    """
    exports: Exports[object] = Exports((export_json, json_text))
    if what is None:
        _list_machine(exports)
    elif what == "routes":
        _list_routes(exports)
    else:
        raise UsageError(f"There is no list {what!r}: write pyxfer list, or pyxfer list routes.")


def _list_machine(exports: Exports[object]) -> None:
    from pyxfer._ceiling.plans import list_routes
    from pyxfer._machine import devices
    from pyxfer._report.host import mode_states, print_routes

    engine = announce_runtime(0).engine
    found, routes = devices.list_devices(engine), list_routes(engine)
    whole = {"devices": found, "routes": routes, "modes": mode_states(routes)}
    exports.deliver(whole, lambda page: print_routes(found, routes, page))


def _list_routes(exports: Exports[object]) -> None:
    from pyxfer._frameworks.registry import list_frameworks, list_routes
    from pyxfer._report.host import print_framework_routes
    from pyxfer.native import choose

    exports.deliver(list_routes(), lambda page: print_framework_routes(list_frameworks(choose(0)), page))


def schema(
    kind: Annotated[
        str,
        opt.argument(
            "KIND", "run, watch, baseline, comparison, examination, pytest, links, host, fleet, plan or thresholds."
        ),
    ],
) -> None:
    """Print the JSON Schema of a kind of document."""
    from pyxfer._document import codec

    structs = {**{each.name: each.struct for each in codec.KINDS}, **codec.UNSEALED}
    made = codec.schema(structs[units.word_of(kind, structs, "KIND")])
    sys.stdout.write(json.dumps(made, indent=1) + "\n")


# --- the application -------------------------------------------------------------------------------------------------


_GROUPS = {
    "Measure": ("ceiling", "frameworks", "links", "doctor"),
    "Understand": ("explain", "files", "blocks", "plan", "watch", "tune"),
    "Keep and compare": ("baseline", "compare", "history", "metrics", "fleet"),
    "Look": ("show", "report", "list", "info", "schema"),
}


class _Verbs(WithDefaults, TyperGroup):
    """Runs every verb so that its errors, and those of the command line, become messages and exit codes."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None and os.path.isfile(args[0]):
            raise UsageError(
                f"{args[0]!r} is a file and not a command: to print it, write pyxfer show {shlex.quote(args[0])}."
            )
        if args[0] in ("help", "version"):
            verb = next((f" {name}" for name in args[1:] if self.get_command(ctx, name) is not None), "")
            options = f"pyxfer{verb} --help" if args[0] == "help" else "pyxfer --version"
            raise UsageError(f"{args[0]!r} is an option and not a command: write {options}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, names in _GROUPS.items():
            helps = [
                (name.ljust(width), self.commands[name].get_short_help_str(formatter.width - 6 - width))
                for name in names
            ]
            with formatter.section(title):
                formatter.write_dl(helps)

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with _usage_as_message():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        with as_exit_codes(), _usage_as_message():
            return super().invoke(ctx)


# typer does not export this base class of its errors, and some versions take it from click.
_CommandLineError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


@contextmanager
def _usage_as_message() -> Iterator[None]:
    """Turn typer's errors into the one line of pyxfer's own."""
    try:
        yield
    except _CommandLineError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # it prints the help
            raise
        context: Any = getattr(error, "ctx", None)
        verb = context.command_path if context else "pyxfer"
        option = getattr(error, "option_name", None)
        if context and verb == "pyxfer" and option in _options_of_ceiling(context):
            say(f"{option} is an option of pyxfer ceiling: write pyxfer ceiling {option}.")
        else:
            text = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
            text = re.sub("is not a valid int(eger)?( range)?$", "is not a whole number", text)
            end = "" if text.endswith("?") else "."
            where = " pyxfer list routes shows every route." if "'ROUTE'" in text else ""
            say(f"{text}{end}{where} See {verb} --help.")
        raise SystemExit(USAGE) from None


def _options_of_ceiling(context: Any) -> set[str]:
    return {name for parameter in context.command.get_command(context, "ceiling").params for name in parameter.opts}


# Plain help: rich would take 0.1 s to load and draw boxes into pipes.
app = Application(
    cls=_Verbs,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from pyxfer._document.machines import version_of

        sys.stdout.write(f"pyxfer {version_of('pyxfer')}\n")
        raise typer.Exit


@app.callback(
    invoke_without_command=True, epilog=_example("pyxfer", "pyxfer ceiling --direction h2d,d2h --export-json run.json")
)
def pyxfer(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    device: opt.Device = "0",
    size: opt.Sizes = _SIZES,
    precision: opt.Precision = "2%",
    budget: opt.Budget = _BUDGET,
    complete: opt.Complete = False,
    details: opt.Details = False,
    quiet: opt.Quiet = False,
    export_json: opt.ExportJson = None,
    report: opt.Report = None,
) -> None:
    """Measure and speed up transfers between host memory and a CUDA GPU.

    Without a command, measures this host for about five seconds; the options apply to this measurement.

    Exit codes: 0 success, 1 slower than the baseline, 2 usage error, 3 no usable GPU although one was required, 4
    invalid or incomplete results, or an error in pyxfer, 130 interrupted.
    """
    verb = context.invoked_subcommand
    if verb is None:
        from pyxfer._ceiling.session import ceiling as ceiling_run

        exports: Exports[Run] = run_exports(export_json, None, None, report, quiet=quiet)
        measure = partial(
            ceiling_run,
            device,
            size=units.sizes_of(size, "--size"),
            precision=units.share_of(precision, "--precision"),
            budget=units.seconds_of(budget, "--budget"),
            trace=False,
            complete=complete,
        )
        measure_and_deliver(measure, exports, device, require_gpu=False, details=details)
        return
    for name in context.params:
        if is_given(context, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} stands before {verb}, where it has no effect: write it after {verb}.")


def _add(application: Application, name: str, verb: Callable[..., None], *examples: str, **settings: Any) -> None:
    application.command(name, epilog=_example(*(f"pyxfer {words}" for words in examples)), **settings)(verb)


_add(app, "ceiling", ceiling, "ceiling --direction h2d --size 1MiB:256MiB:x4 --export-json run.json")
_add(
    app,
    "frameworks",
    frameworks,
    "frameworks torch tensorflow --size 1MiB,96MiB",
    "frameworks --workload image-batch --batch 8,512 --report a.html",
)
_add(app, "explain", explain, "explain torch.to", "explain tf.function --size 96MiB --export-json run.json")
_add(app, "files", files, "files model.safetensors", "files weights/ --loader 'safetensors.*' --state warm")
_add(app, "blocks", blocks, "blocks", "blocks --size 16KiB,64KiB --export-thresholds thresholds.json")
_add(app, "doctor", doctor, "doctor", "doctor --export-json host.json", "doctor run.json")
_add(app, "links", links, "links", "links --group together,pairs --device 0,1 --export-json links.json")
_add(
    app,
    "plan",
    plan,
    "plan --block-bytes 16KiB --blocks 10000 --compute 0.4s",
    "plan --model llama-8b --tokens 4096 --prefill 12000tok/s",
)
_add(app, "info", info, "info --export-json machine.json")
_add(app, "list", list_all, "list", "list routes")
_add(app, "schema", schema, "schema run > run.schema.json")
_add(app, "show", show, "show run.json --details")
_add(app, "report", report_verb, "report run.json", "report run.json -o sizes.svg --chart sizes")
_add(app, "tune", tune, "tune", "tune --device 1 --budget 3s --export-json tuning.json")
_add(
    app,
    "watch",
    watch,
    "watch --skip 10 --steps 20 --trace trace.json train.py --epochs 1",
    "watch --skip 30s --duration 5s -m package.train",
    # Options after the script's name belong to the script.
    context_settings={"allow_interspersed_args": False},
)
_add(baseline, "save", save, "baseline save --label slot=3")
_add(baseline, "check", check, "baseline check", "baseline check --export-junit check.xml")
app.add_typer(baseline, name="baseline")
_add(app, "compare", compare, "compare monday.json today.json", "compare baseline:default run.json --fail-on slower:5%")
_add(app, "history", history, "history --cell h2d:pinned:256MiB --since 30d")
_add(app, "metrics", metrics, "metrics --export-prometheus /var/lib/node_exporter/pyxfer.prom")
_add(fleet, "host", fleet_host, "fleet host", "fleet host --export-json host.json --label rack=r7 --budget 15s")
_fleet_run = _example("pyxfer fleet run --hosts node1,node2", "salloc -N 16 --gpus-per-node 8 pyxfer fleet run")
fleet.command("run", epilog=_fleet_run)(fleet_run)
app.add_typer(fleet, name="fleet")


# --- the program -----------------------------------------------------------------------------------------------------


def run(default_map: dict[str, Any] | None = None) -> None:
    """Run the command line and exit with its code. The caller has already installed the handler of Ctrl-C.

    With a `default_map` the options have its defaults in place of those of the user's files.
    """
    prepare_streams()
    code: object = INTERRUPTED
    try:
        with as_exit_codes():
            app(prog_name="pyxfer", default_map=default_map)
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:  # a second Ctrl-C while the first was handled
        pass
    # Python would exit with 1, which means slower. A panic of a library in Rust is no Exception.
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        code = NOT_VALID
    # Everything is saved; with this another Ctrl-C during Python's shutdown prints no traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    exit_at_once_if_stuck(code)
    raise SystemExit(code)
