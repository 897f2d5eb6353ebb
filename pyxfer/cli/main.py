"""The command `pyxfer`: its verbs, and the one way in."""

from __future__ import annotations

import signal
import sys
import traceback
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .failures import NOT_VALID, as_exit_codes, leave_at_once_if_stuck
from .interrupts import INTERRUPTED
from .streams import prepare_streams
from .verb_baseline import app as baseline
from .verb_baseline_check import check, save
from .verb_ceiling import ceiling
from .verb_compare import compare
from .verb_doctor import doctor
from .verb_explain import explain
from .verb_export import app as export
from .verb_frameworks import frameworks
from .verb_history import history
from .verb_host import show_host
from .verb_info import info
from .verb_list import list_all
from .verb_show import show
from .verb_tune import tune
from .verb_watch import watch


class _Verbs(TyperGroup):
    """Every verb runs where its errors become sentences."""

    def invoke(self, ctx: Any) -> Any:
        with as_exit_codes():
            return super().invoke(ctx)


# Plain help: rich would cost a tenth of a second, and draw boxes into pipes.
app = typer.Typer(
    cls=_Verbs,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"pyxfer {_version()}\n")
        raise typer.Exit


def _version() -> str:
    try:
        return metadata.version("pyxfer")
    except metadata.PackageNotFoundError:
        return "of an unknown version (run from its source, not installed)"


def _example(*commands: str) -> str:
    """The foot of a help page; the backspace keeps its lines as they are."""
    return "\b\nExample:\n" + "\n".join(f"  {command}" for command in commands)


@app.callback(
    invoke_without_command=True, epilog=_example("pyxfer", "pyxfer ceiling --direction h2d,d2h --export-json run.json")
)
def pyxfer(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """How fast bytes can cross the link between host memory and a GPU, and how fast they do.

    Without a verb: this host in ten seconds.

    Exit codes: 0 fine, 1 slower than the baseline, 2 usage, 3 a GPU was required and none is usable, 4 measured but not
    valid, or a fault of pyxfer itself, 130 interrupted.
    """
    if context.invoked_subcommand is None:
        show_host()


app.command(epilog=_example("pyxfer ceiling --direction h2d --sizes 1MiB:256MiB:x4 --export-json run.json"))(ceiling)
app.command(
    epilog=_example(
        "pyxfer frameworks torch tensorflow --sizes 1MiB,96MiB",
        "pyxfer frameworks --workload image-batch --batches 8,512 --export-json run.json",
    )
)(frameworks)
app.command(
    epilog=_example("pyxfer explain torch.to", "pyxfer explain tf.function --size 96MiB --export-json run.json")
)(explain)
app.command(epilog=_example("pyxfer doctor", "pyxfer doctor --json > host.json", "pyxfer doctor run.json"))(doctor)
app.command(epilog=_example("pyxfer info --json > machine.json"))(info)
app.command("list", epilog=_example("pyxfer list", "pyxfer list routes"))(list_all)
app.command(epilog=_example("pyxfer show run.json --sort gbps"))(show)
app.command(epilog=_example("pyxfer tune", "pyxfer tune --device 1 --limit 3s --json"))(tune)
app.command(
    # What follows the script's name is the script's.
    context_settings={"allow_interspersed_args": False},
    epilog=_example(
        "pyxfer watch --skip 10 --steps 20 --trace trace.json train.py --epochs 1",
        "pyxfer watch --skip 30s --for 5s -m package.train",
    ),
)(watch)
baseline.command(epilog=_example("pyxfer baseline save --label slot=3"))(save)
baseline.command(epilog=_example("pyxfer baseline check", "pyxfer baseline check --format junit -o check.xml"))(check)
app.add_typer(baseline, name="baseline")
app.command(
    epilog=_example(
        "pyxfer compare monday.json today.json", "pyxfer compare baseline:default run.json --fail-on slower:5%"
    )
)(compare)
app.command(epilog=_example("pyxfer history --cell h2d:pinned:256MiB --since 30d"))(history)
app.add_typer(export, name="export")


def run() -> None:
    """Run the command line and leave with its exit code; whoever calls this heeds Ctrl-C already."""
    prepare_streams()
    code: object = INTERRUPTED
    try:
        with as_exit_codes():
            app(prog_name="pyxfer")
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:  # pressed again while the first was being answered
        pass
    except Exception:  # noqa: BLE001 - Python would end with 1, and that says that something is slower
        traceback.print_exc()
        code = NOT_VALID
    # Everything is saved; another Ctrl-C during Python's own shutdown would print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    leave_at_once_if_stuck(code)
    raise SystemExit(code)
