"""The command `fleet run`: measure all hosts of a fleet and judge them."""

from __future__ import annotations

import datetime
import importlib.util
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pyxfer import units
from pyxfer._cli import fleet
from pyxfer._cli import options as opt
from pyxfer._cli.defaults import is_given
from pyxfer._cli.failures import INTERRUPTED, say
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._document.fleets import Fleet
    from pyxfer._fleet.launch import HostJob, Launcher
    from pyxfer._measure.sampler import OnProgress

Transport = Literal["auto", "srun", "ssh", "ray", "files", "store"]
TRANSPORTS: tuple[Transport, ...] = ("auto", "srun", "ssh", "ray", "files", "store")
_DOCUMENTS_S = 1.0
# Ray writes the address of a cluster of this machine into this file of its folder for temporary files.
_RAY_CLUSTER = "ray/ray_current_cluster"
_MAX_AT_ONCE = 400
_VERDICTS = "fleet.json"

Via = Annotated[
    str,
    opt.option("--via", "WAY", "How hosts are reached: auto, srun, ssh, ray, files or store."),
]
Hosts = Annotated[str | None, opt.option("--hosts", "LIST", "Comma-separated list of hosts.")]
HostsFile = Annotated[
    str | None, opt.option("--hosts-file", "FILE", "A file with one host a line; # begins a comment.")
]
Folder = Annotated[str | None, opt.option("--folder", "DIR", "With --via files: where hosts write their documents.")]
Since = Annotated[
    str | None,
    opt.option("--since", "TIME", "With --via store: documents that were stored since then, such as 2h or a date."),
]
Output = Annotated[
    str | None, opt.option("--output-folder", "DIR", "Folder for all documents; default fleet- and the time.")
]
Budget = Annotated[str, opt.option("--budget", "TIME", "Time that each host has for its job.")]
Wait = Annotated[
    str | None,
    opt.option(
        "--wait",
        "TIME",
        "How long to wait for GPUs in use (Ray; default 20s), or for the documents of --hosts (files, store; 1s).",
    ),
]
Labels = Annotated[list[str] | None, opt.option("--label", "KEY=VALUE", "A label for every host; repeat it for more.")]
Devices = Annotated[
    str | None, opt.option("--device", "LIST", "GPUs of each host, as in pyxfer fleet host; all by default.")
]
Program = Annotated[
    str, opt.option("--pyxfer", "COMMAND", "The command that is pyxfer on the hosts, such as 'uvx pyxfer'.")
]
AtOnce = Annotated[int, opt.option("--at-once", "N", "Hosts at a time, by ssh or srun.", min=1, max=_MAX_AT_ONCE)]
Confirm = Annotated[
    bool, typer.Option("--confirm/--no-confirm", help="Measure flagged hosts again before they are called slow.")
]


def run(
    context: typer.Context,
    *,
    via: Via = "auto",
    hosts: Hosts = None,
    hosts_file: HostsFile = None,
    folder: Folder = None,
    since: Since = None,
    output_folder: Output = None,
    budget: Budget = "25s",
    wait: Wait = None,
    label: Labels = None,
    device: Devices = None,
    quiet: opt.Quiet = False,
    program: Program = "pyxfer",
    at_once: AtOnce = 256,
    confirm: Confirm = True,
    export_json: opt.WholeJson = None,
    export_prometheus: opt.ExportPrometheus = None,
    export_drain: fleet.ExportDrain = None,
    report: opt.Report = None,
    store: opt.Store = None,
) -> None:
    """Measure all hosts and judge them.

    Runs pyxfer fleet host on every host, within a Slurm allocation (srun), over ssh, on a running Ray cluster, or reads
    what hosts have written into a folder or a store. Compares equal hosts with each other, measures slow ones again
    beside two others, and says what the slow ones have in common. Ctrl-C ends the measuring; what has arrived is
    judged.
    """
    from pyxfer._document import codec
    from pyxfer._fleet.job import budget_of, labels_of
    from pyxfer._fleet.launch import HostJob
    from pyxfer._fleet.run import FleetRun, Kept

    exports = fleet.fleet_exports(export_json, export_prometheus, export_drain, report, quiet=quiet)
    transport, named = units.word_of(via, TRANSPORTS, "--via"), _named_hosts(hosts, hosts_file)
    job = HostJob(_words_of(program), budget_of(budget), labels_of(label or (), {}), device)
    wait_s = None if wait is None else units.seconds_of(wait, "--wait")
    transport = _chosen_transport(named, folder, since) if transport == "auto" else transport
    _refuse_unused(transport, context)
    source = _source_of(transport, folder, since)
    launcher = None if source else _launcher(transport, job, named, at_once, wait_s)
    waited_s = _DOCUMENTS_S if wait_s is None else wait_s
    with _made_folder(output_folder) as folder_of_documents:
        kept = Kept(folder_of_documents, say)
        with exports.progress() as progress:
            if launcher is None:
                judged, interrupted = _arrived(transport, source, store, named, waited_s, progress)
            else:
                measured = FleetRun(launcher, kept, progress)
                judged, interrupted = measured.run(confirm=confirm), measured.interrupted
        kept.put(_VERDICTS, codec.encode(judged))
    try:
        fleet.deliver_fleet(judged, exports, kept.finish())
    finally:
        if interrupted:
            say("interrupted")
            raise SystemExit(INTERRUPTED)


def _words_of(program: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(program))
    except ValueError as error:
        raise UsageError(
            f"--pyxfer {program!r:.80} is not a command of a shell ({error}): give one such as 'uvx pyxfer'."
        ) from error
    if not words:
        raise UsageError("--pyxfer is empty: name the command that is pyxfer on the hosts.")
    return words


def _named_hosts(hosts: str | None, hosts_file: str | None) -> list[str]:
    found = [] if hosts is None else hosts.split(",")
    if hosts_file is not None:
        try:
            text = Path(hosts_file).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise UsageError(
                f"--hosts-file {hosts_file!r} cannot be read ({error.strerror}): check the name and who may read it."
            ) from error
        except UnicodeDecodeError as error:
            raise UsageError(f"--hosts-file {hosts_file!r} is not text in UTF-8: save it as UTF-8.") from error
        found += [line.partition("#")[0] for line in text.splitlines()]
    named = [host.strip() for host in found if host.strip()]
    if not named and (hosts is not None or hosts_file is not None):
        raise UsageError(f"{'--hosts' if hosts_file is None else '--hosts-file'} names no host: name at least one.")
    return named


def _chosen_transport(hosts: Sequence[str], folder: str | None, since: str | None = None) -> Transport:
    from pyxfer._fleet.launch import SLURM_JOB

    if folder is not None:
        return "files"
    if since is not None:
        return "store"
    if SLURM_JOB in os.environ:
        return "srun"
    if importlib.util.find_spec("ray") is not None and ("RAY_ADDRESS" in os.environ or _is_on_ray()):
        return "ray"
    if hosts:
        return "ssh"
    raise UsageError(
        "No hosts are named: give --hosts for ssh, run this in a Slurm allocation or on a node of a Ray cluster, or "
        "give --folder or --since for what hosts have written into a folder or a store."
    )


def _refuse_unused(transport: Transport, context: typer.Context) -> None:
    """Options of the command line that this transport would ignore."""
    unused: tuple[str, ...]
    if transport in ("files", "store"):
        used = {"files": "folder", "store": "since"}[transport]
        what = f"reads documents that hosts have written into a {'folder' if transport == 'files' else 'store'}"
        unused = ("folder", "since", "device", "label", "budget", "program")
    else:
        used, what, unused = "", "measures the hosts now", ("folder", "since")
    given = (name for name in unused if name != used and is_given(context, name))
    if (name := next(given, None)) is not None:
        raise UsageError(f"--via {transport} {what}: leave out --{'pyxfer' if name == 'program' else name}.")


def _is_on_ray() -> bool:
    folders = (os.environ.get(name) for name in ("RAY_TMPDIR", "TMPDIR"))
    return Path(next(filter(None, folders), "/tmp"), _RAY_CLUSTER).exists()  # noqa: S108 - Ray's own choice


def _launcher(transport: Transport, job: HostJob, hosts: list[str], at_once: int, wait_s: float | None) -> Launcher:
    if transport == "ray":
        from pyxfer._fleet.ray import QUEUE_S, ray_launcher

        return ray_launcher(job, hosts, QUEUE_S if wait_s is None else wait_s)
    from pyxfer._fleet.launch import srun_launcher, ssh_launcher

    return (srun_launcher if transport == "srun" else ssh_launcher)(job, hosts, at_once)


@contextmanager
def _made_folder(output: str | None) -> Iterator[Path]:
    """The folder, which is made now, so that a wrong one is refused before anything is measured.

    A new one that is still empty at the end is removed.
    """
    from pyxfer._fleet.run import FIRST

    now = datetime.datetime.now(datetime.timezone.utc)
    if output == "":
        raise UsageError("--output-folder is empty: name a folder.")
    folder = Path(output or f"fleet-{now:%Y%m%dT%H%M%SZ}")
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--output-folder {str(folder)!r} cannot be made ({error.strerror}): name another folder."
        ) from error
    if (folder / FIRST).exists() or (folder / _VERDICTS).exists():
        raise UsageError(f"--output-folder {str(folder)!r} has the documents of an earlier run: name another folder.")
    try:
        yield folder
    finally:
        if is_new:
            with suppress(OSError):  # it has documents
                folder.rmdir()


def _source_of(transport: Transport, folder: str | None, since: str | None) -> str:
    """The folder of the documents, or since when the store has them; empty if hosts are measured now."""
    if transport == "files" and (not folder or not Path(folder).is_dir()):
        raise UsageError("--via files needs a folder: give --folder, into which hosts write their documents.")
    if transport == "store" and not since:
        raise UsageError("--via store needs the greatest age of the documents: give --since, such as --since 2h.")
    return {"files": folder, "store": since}.get(transport) or ""


def _arrived(
    transport: Transport,
    source: str,
    store: str | None,
    hosts: Sequence[str],
    wait_s: float,
    progress: OnProgress,
) -> tuple[Fleet, bool]:
    """The verdicts on what hosts have written, and whether Ctrl-C ended the wait for it."""
    from pyxfer._fleet.collect import read_confirmations
    from pyxfer._fleet.judge import judge
    from pyxfer._fleet.run import wait_for_files, wait_for_stored

    if transport == "files":
        arrivals, interrupted = wait_for_files(Path(source), hosts, wait_s, progress)
        return judge(arrivals, confirmations=read_confirmations([source])), interrupted
    from pyxfer._baseline.store import open_store  # files are read without SQLAlchemy

    with open_store(store, create=False) as opened:
        arrivals, interrupted = wait_for_stored(opened, source, hosts, wait_s, progress)
    return judge(arrivals), interrupted
