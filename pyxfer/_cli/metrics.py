"""The verb `metrics`: the newest runs for Prometheus."""

from __future__ import annotations

import os
import platform
import stat
from typing import TYPE_CHECKING, Annotated

from pyxfer._cli import options as opt
from pyxfer._cli.failures import say
from pyxfer._cli.output import COLLECTED, Exports
from pyxfer.errors import UsageError
from pyxfer.units import format_size

if TYPE_CHECKING:
    from pyxfer._document.links import Links
    from pyxfer._document.runs import Run
    from pyxfer._report.prometheus import Exported


STDOUT = "-"


def metrics(
    file: Annotated[
        str | None, opt.argument("[RUN.json]", "A saved run or links, not the newest in the store.")
    ] = None,
    export_prometheus: Annotated[
        str, opt.option("--export-prometheus", "FILE", "Write them to FILE; - is stdout.")
    ] = STDOUT,
    store: opt.Store = None,
) -> None:
    """Print Prometheus metrics of the newest runs.

    Gives the bandwidth of raw copies and its share of the peak, the link, and the time of measurement, for each GPU of
    this host, in the text format that node_exporter collects. Measures nothing, but reads the link's counter of
    retransmitted packets if the driver provides it.
    """
    from pyxfer._document import codec
    from pyxfer._document.links import Links
    from pyxfer._document.runs import Run

    exports: Exports[str] = Exports((export_prometheus, str))
    if file is not None and store is not None:
        raise UsageError("A file and --store exclude each other: give one of them.")
    exports.finish(_text(_stored(store)) if file is None else _text_of_saved(codec.load_any(file, (Run, Links))))
    is_collected = exports.takes_stdout or export_prometheus.endswith(COLLECTED)
    if not is_collected and stat.S_ISREG(os.stat(export_prometheus).st_mode):
        say(f"node_exporter collects only files that end in {COLLECTED}; {export_prometheus!r} does not")


def _text_of_saved(saved: Run | Links) -> str:
    from pyxfer._document.runs import Run
    from pyxfer._measure.link_runs import runs_of

    if saved.runtime == "host":
        raise UsageError("The document was measured in host memory and not over a link: give that of a GPU.")
    return _text([saved] if isinstance(saved, Run) else list(runs_of(saved)))


def _text(runs: list[Run]) -> str:
    from pyxfer._report import prometheus

    for run in runs:
        found = [f"{row.side} {row.memory} {format_size(row.nbytes)}" for row in prometheus.beyond_peak(run)]
        if found:
            say(
                f"left out for GPU {run.device.index}, because no copy can be faster than the link: "
                f"{', '.join(found)}; pyxfer doctor shows possible causes"
            )
    return prometheus.exposition([_exported(run) for run in runs]).decode()


def _stored(url: str | None) -> list[Run]:
    from pyxfer._baseline.store import open_store
    from pyxfer._document.runs import Run

    host = platform.node()
    with open_store(url, create=False) as store:
        runs = [stored.run for stored in store.newest_raw_runs(host) if isinstance(stored.run, Run)]
        if not runs:
            raise UsageError(
                f"The store {store.shown} has no run of a GPU of this host ({host!r:.80}): "
                "save one with pyxfer baseline save, or give a RUN.json."
            )
    return runs


def _exported(run: Run) -> Exported:
    """The run with the current count of replays, if its GPU is in this host. The GPU is found by its UUID alone."""
    import msgspec

    from pyxfer._document.machines import unknown
    from pyxfer._machine import nvml
    from pyxfer._machine.health import replays
    from pyxfer._report.prometheus import Exported

    if run.environment.host != platform.node() or run.device.uuid.value is None:
        return Exported(run, unknown("the run is of another host"))
    return Exported(run, replays(nvml.shared(), msgspec.structs.replace(run.device, pci=unknown("not asked"))))
