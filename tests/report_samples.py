"""One document of each kind for reports, and a run whose labels are hostile."""

from __future__ import annotations

import functools

import msgspec
from baseline import link_processes
from baseline.store.making import make_baseline
from baseline_samples import make_sample, slow_pinned
from doctor.cases import h200, health
from explain_samples import make_explain_run
from fleet_samples import arrivals, make_fleet, make_host, make_hosts
from framework_samples import make_frameworks_run, make_image_batch_run
from link_samples import h200_rate, link_device, make_links
from offload_samples import make_plan
from order_samples import make_orders_run
from pages import HOST_REASON, full_run, host_run
from samples import SCRIPT, Made, make_device, make_hostile, make_measurement, make_missing, make_run
from watch_samples import make_stalled, make_unseen, make_watched
from xfer_samples import row_of, session

from pyxfer._baseline import check
from pyxfer._baseline.compare import compare_samples
from pyxfer._doctor.examine import examine, nearest_known, without_trials
from pyxfer._document import machines, runs
from pyxfer._document.baselines import History, HistoryChange, HistoryGroup, HistoryLimit, HistoryPoint
from pyxfer._document.cells import Cell
from pyxfer._document.examinations import Examination
from pyxfer._document.links import FlowPlan, Links
from pyxfer._document.machines import Fact
from pyxfer._fleet.judge import judge
from pyxfer._links.plan import TrafficPlan

RIGHT_TO_LEFT = "abc\u202edef\u05d0"
BREAKOUT = (
    "</script></svg><script>document.title = 'injected'</script>\"'<img src=x onerror=\"document.title='injected'\">"
)


def make_examination() -> Examination:
    run = h200()
    nearest = nearest_known(run)
    return Examination(without_trials(run), Fact(health()), nearest, examine(run, health(), nearest.value))


def make_outside_run() -> runs.Run:
    """A run whose names are attacks on the page."""
    rows = (
        make_hostile(),
        make_measurement(route=BREAKOUT, memory=BREAKOUT, mode=RIGHT_TO_LEFT, bracket="drained"),
        make_missing(BREAKOUT, route=SCRIPT, bracket="drained"),
    )
    return make_run(
        device=make_device(name=BREAKOUT),
        remarks=(machines.Remark("x", BREAKOUT, SCRIPT),),
        measurements=rows,
        curves=(),
    )


def make_history(step: float = 0.05) -> History:
    """60 runs of one cell, from the 41st on slower by `step`."""
    cell = Cell("raw", "raw.pinned-async", "h2d", "h2d", "pinned", 256 << 20, "async")
    rates = [55.0 * (1 + 0.002 * (number * 7 % 5 - 2)) * (1 - step * (number >= 40)) for number in range(60)]
    moments = [f"2026-01-{1 + number // 3:02}T{number % 3 * 8:02}:00:00+00:00" for number in range(60)]
    points = tuple(
        HistoryPoint(f"run{number}", moment, gbps, gbps * 0.999, gbps * 1.001, 0.256 / gbps, gbps / 55)
        for number, (moment, gbps) in enumerate(zip(moments, rates, strict=True))
    )
    change = HistoryChange(points[40].run_id, points[40].taken_at, 55.0, 55.0 * (1 - step))
    group = HistoryGroup(
        *("node-7", "cuda", "NVIDIA H200", Fact("GPU-1"), cell, "h2d:pinned:256MiB", None, 55.0, points),
        limit=Fact(HistoryLimit(0.012, 5)),
        changes=(change,) if step else (),
    )
    return History((group,))


def _of_two_sockets(plan: TrafficPlan, flow: FlowPlan) -> float:
    """GPUs 0 and 1 share an uplink, 2 and 3 another one; memory of the other socket is slower."""
    copying = {other.device for other in plan.flows if other.side == flow.side}
    if plan.node is not None and plan.node != flow.device // 2:
        return 41.2
    if plan.group == "together" and {flow.device, flow.device ^ 1} <= copying:
        return 28.0
    return h200_rate(plan, flow)


@functools.cache
def make_links_of_four(reason: str = "peer access is off") -> Links:
    """Four GPUs below two sockets. GPU 0 could not read from GPU 1."""
    devices = tuple(
        link_device(make_device(index=n, uuid=Fact(f"GPU-{n}"), pci=Fact(f"0000:{n + 16:02x}:00.0")), node=Fact(n // 2))
        for n in range(4)
    )

    def unavailable(plan: TrafficPlan) -> str | None:
        ends = [(flow.source, flow.destination) for flow in plan.flows]
        return reason if plan.case == "read" and ends == [(1, 0)] else None

    return make_links(4, _of_two_sockets, devices=devices, nodes=(0, 1), unavailable=unavailable)


def make_links_of_host() -> Links:
    """Links between simulated devices, which have no peak."""
    devices = tuple(
        link_device(make_device(index=n, runtime="host", name=HOST_REASON), link=host_run(full_run()).link)
        for n in range(2)
    )
    return make_links(devices=devices, runtime="host", runtime_reason=HOST_REASON)


def make_outside_links() -> Links:
    """Links whose names are attacks on the page."""
    run = make_links_of_four(BREAKOUT + RIGHT_TO_LEFT + "\x1b[31m")
    devices = tuple(
        msgspec.structs.replace(each, device=msgspec.structs.replace(each.device, name=BREAKOUT))
        for each in run.devices
    )
    return msgspec.structs.replace(run, devices=devices, remarks=(machines.Remark("x", BREAKOUT, SCRIPT),))


DOCUMENTS = Made(
    {
        "ceiling": full_run,
        "ceiling of the host": lambda: host_run(full_run(ended="interrupted")),
        "frameworks": make_frameworks_run,
        "image batches": make_image_batch_run,
        "orders of work": make_orders_run,
        "explain": make_explain_run,
        "watch": make_watched,
        "watch with slow steps": make_stalled,
        "watch without records": make_unseen,
        "comparison": lambda: compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.3))),
        "examination": make_examination,
        "comparison of links": lambda: compare_samples(
            link_processes.make_sample("A"),
            link_processes.make_sample("B", seed=2, rate_of=link_processes.slow_pair(0, 1)),
        ),
        "baseline": make_baseline,
        "baseline of links": lambda: check.make_baseline(
            "links", {"rack": "r7"}, link_processes.make_processes(), "2025-11-21T09:00:00+00:00"
        ),
        "history": make_history,
        "history without changes": lambda: make_history(step=0.0),
        "pytest": lambda: session(row_of(), row_of("tests/test_b.py::test_other", None)),
        "nothing measured": lambda: make_run(measurements=(make_missing(),), curves=()),
        "one point": lambda: make_run(measurements=(make_measurement(),), curves=()),
        "hostile": make_outside_run,
        "links": make_links,
        "links of one GPU": lambda: make_links(1),
        "links of four GPUs": make_links_of_four,
        "links of the host": make_links_of_host,
        "hostile links": make_outside_links,
        "fleet": make_fleet,
        "fleet of two groups": lambda: judge(arrivals(make_hosts(16, dict.fromkeys((1, 2, 3, 4), 0.08)))),
        "host": lambda: make_host(BREAKOUT, labels={BREAKOUT: RIGHT_TO_LEFT}),
        "plan": make_plan,
    }
)
