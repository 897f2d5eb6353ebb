"""`pyxfer ceiling`: how fast bytes can cross this link."""

from __future__ import annotations

from . import options as opt
from .deliver import deliver
from .failures import say


def ceiling(
    *,
    device: opt.Device = "0",
    direction: opt.Directions = "h2d,d2h,both",
    memory: opt.Memories = "pageable,pinned",
    mode: opt.Modes = "auto",
    sizes: opt.Sizes = "4KiB:256MiB:x4",
    fresh: opt.Fresh = False,
    precision: opt.Precision = "0.5%",
    budget: opt.Budget = "7s",
    seed: opt.Seed = None,
    no_trace: opt.NoTrace = False,
    require_gpu: opt.RequireGpu = False,
    export_json: opt.ExportJson = None,
    export_csv: opt.ExportCsv = None,
    export_md: opt.ExportMd = None,
) -> None:
    """How fast bytes can cross the link between host memory and a GPU.

    Measures raw copies of every size, direction, memory and mode side by side, and sets them against what the link
    could do on paper. What is not known to the precision is marked, with the reason and what would help.
    """
    from pyxfer import native, raw, units

    from .exports import Exports
    from .progress import ProgressReport

    exports = Exports(export_json, export_csv, export_md)
    asked = {
        "directions": opt.split_list(direction, "--direction"),
        "memories": opt.split_list(memory, "--memory"),
        "modes": opt.split_list(mode, "--mode"),
    }
    precision_share, budget_s = units.parse_ratio(precision), units.parse_duration(budget)
    choice = native.choose(device, require_gpu)
    if choice.reason:
        say(choice.reason)
    with ProgressReport() as report:
        run = raw.ceiling(
            device,
            directions=asked["directions"],
            memories=asked["memories"],
            modes=asked["modes"],
            sizes=sizes,
            fresh=fresh,
            precision=precision_share,
            budget_s=budget_s,
            seed=seed,
            require_gpu=require_gpu,
            trace=not no_trace,
            on_progress=report,
            save_to=exports.save,
        )
    deliver(run, exports)
