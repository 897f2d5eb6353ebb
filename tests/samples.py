"""A small complete run with figures like those of an H200 host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from pyxfer._document import machines, runs
from pyxfer._document.derivations import derived
from pyxfer._document.machines import COMPLETION_OVERHEAD_BYTES, WRITE_OVERHEAD_BYTES, Fact, unknown
from pyxfer._measure import stats

KIB, MIB = 1024, 1024**2
SIZES = (4 * KIB, 16 * MIB)
SECONDS = {4 * KIB: 2.52e-6, 16 * MIB: 304e-6}

# Text that a spreadsheet, a terminal page or a Markdown viewer would interpret if it were not escaped.
FORMULA = "=cmd|' /C calc'!A0"
MARKUP = "[red]x[/red]"
SCRIPT = "<script>alert(1)</script>"

PINNED = "raw.pinned-async"
PAGEABLE = "raw.pageable-memcpy"
Known = TypeVar("Known")


def known(fact: Fact[Known]) -> Known:
    """The value, which must be known."""
    assert fact.value is not None, fact.reason
    return fact.value


def make_device(**overrides: Any) -> machines.Device:
    """One GPU."""
    device = machines.Device(
        index=0,
        runtime="cuda",
        name="NVIDIA H200",
        memory_bytes=150_754_820_096,
        uuid=Fact("GPU-6a1f2c3d-0001-0002-0003-000000000004"),
        pci=Fact("0000:19:00.0"),
        compute_capability=Fact("9.0"),
        copy_engines=Fact(3),
        mig=Fact(False),
        vgpu=Fact(False),
        confidential=Fact(False),
    )
    return msgspec.structs.replace(device, **overrides)


def make_link(**overrides: Any) -> machines.Link:
    """PCIe 5.0 x16 under one switch."""
    gen5 = machines.LinkState(generation=5, width=16)
    hop = machines.Hop(pci="0000:19:00.0", now=Fact(gen5), most=Fact(gen5))
    link = machines.Link(
        kind="pcie",
        now=Fact(gen5),
        under_load=Fact(gen5),
        device_most=Fact(gen5),
        system_most=Fact(gen5),
        max_payload_bytes=Fact(256),
        max_read_request_bytes=unknown("PCI configuration space is readable only in part without root"),
        relaxed_ordering=unknown("PCI configuration space is readable only in part without root"),
        hops=(hop,),
        narrowest_hop=Fact(hop),
        raw_peak_gbps=Fact(gen5.gbps),
        h2d_peak_gbps=Fact(gen5.gbps * 256 / (256 + COMPLETION_OVERHEAD_BYTES)),
        d2h_peak_gbps=Fact(gen5.gbps * 256 / (256 + WRITE_OVERHEAD_BYTES)),
    )
    return msgspec.structs.replace(link, **overrides)


def make_environment(**overrides: Any) -> machines.Environment:
    """A container on a two-socket host."""
    environment = machines.Environment(
        host="node-7",
        taken_at="2025-11-21T08:30:00+00:00",
        pyxfer="0.1.0",
        python="3.11.9",
        numpy="2.1.3",
        cuda_runtime="12.9",
        driver=Fact("570.124.06"),
        driver_cuda=Fact("12.8"),
        visible_devices=unknown("CUDA_VISIBLE_DEVICES is not set"),
        gpu_clocks=Fact(machines.Clocks(sm_mhz=1980, memory_mhz=3201, sm_most_mhz=1980, memory_most_mhz=3201)),
        throttle_reasons=Fact(()),
        performance_state=Fact("P0"),
        temperature_c=Fact(34),
        persistence=Fact(True),
        other_gpu_processes=Fact(()),
        cpu_model=Fact("INTEL(R) XEON(R) PLATINUM 8568Y+"),
        cpus_usable=16,
        cpu_governor=unknown("/sys/devices/system/cpu/cpu0/cpufreq is not there"),
        memory_bytes=Fact(137_438_953_472),
        memory_available_bytes=Fact(120_000_000_000),
        transparent_huge_pages=Fact("madvise"),
        iommu=unknown("/sys/class/iommu is not readable"),
        kernel="6.8.0",
        system=Fact("Debian GNU/Linux 12"),
        container=Fact("docker"),
        virtual_machine=unknown("the processor reports no hypervisor"),
    )
    return msgspec.structs.replace(environment, **overrides)


def make_measurement(
    nbytes: int = 16 * MIB, side: machines.Side = "h2d", slower: float = 1.0, **overrides: Any
) -> runs.Measurement:
    """Eight slightly different trials of a pinned copy."""
    moved_bytes = 2 * nbytes if side == "sum" else nbytes
    scale = slower * {"h2d": 1.0, "d2h": 1.01, "sum": 1.07}[side]
    seconds = [
        SECONDS[nbytes] * scale * (1.0035 + 1e-4 * step) for step in (-3.5, 2.5, -1.5, 0.5, -0.5, 1.5, -2.5, 3.5)
    ]
    summary = stats.summarise(seconds)
    rate = stats.rate(moved_bytes, summary)
    peak = make_link().peak_gbps(side).value
    assert peak is not None
    measurement = runs.Measurement(
        route=PINNED,
        direction="both" if side == "sum" else side,
        side=side,
        memory="pinned",
        mode="async",
        variant="warm",
        bracket="gated",
        nbytes=nbytes,
        moved_bytes=moved_bytes,
        rate=Fact(rate),
        peak_share=Fact(rate.gbps / peak),
        ceiling_share=Fact(runs.Share(value=1 / slower, low=1 / slower, high=1 / slower)),
        verified=Fact(True),
        first_s=Fact(412e-6),
        summary=summary,
        dispatch=stats.summarise([1.1e-6] * len(seconds)),
        trials=tuple(runs.Trial(round=i, elapsed_s=s, dispatch_s=1.1e-6, copies=16) for i, s in enumerate(seconds)),
    )
    return msgspec.structs.replace(measurement, **overrides)


def retimed(row: runs.Measurement, seconds: Sequence[float], dispatch_s: float | None = None) -> runs.Measurement:
    """The row with these trials and all figures that follow from them, but without a share of a ceiling."""
    summary = stats.summarise(seconds)
    rate = stats.rate(row.moved_bytes, summary)
    peak = make_link().peak_gbps(row.side).value
    return msgspec.structs.replace(
        row,
        trials=tuple(runs.Trial(number, time_s, dispatch_s) for number, time_s in enumerate(seconds)),
        summary=summary,
        dispatch=None if dispatch_s is None else stats.summarise([dispatch_s] * len(seconds)),
        wall=None,
        rate=Fact(rate),
        peak_share=unknown("no peak") if peak is None else Fact(rate.gbps / peak),
        ceiling_share=unknown("no ceiling"),
    )


def by_caller(row: runs.Measurement, times: float = 2.0) -> runs.Measurement:
    """The row with a caller's time, this many times as long as the device's."""
    trials = tuple(msgspec.structs.replace(trial, wall_s=times * trial.elapsed_s) for trial in row.trials)
    wall = stats.summarise([trial.wall_s for trial in trials if trial.wall_s is not None])
    return msgspec.structs.replace(row, trials=trials, wall=wall)


def make_missing(reason: str = "out of page-locked memory: 16 MiB refused", **overrides: Any) -> runs.Measurement:
    """A measurement without a result."""
    blank: dict[str, Any] = dict.fromkeys(
        ("rate", "peak_share", "ceiling_share", "verified", "first_s"), unknown(reason)
    )
    return make_measurement(**{**blank, "summary": None, "dispatch": None, "trials": (), **overrides})


def make_hostile() -> runs.Measurement:
    """A measurement whose labels are formulas, scripts and markup."""
    return make_measurement(
        route=FORMULA,
        memory=SCRIPT,
        mode=MARKUP,
        bracket="drained",
        remarks=(machines.Remark(code="label", text=f"{FORMULA} {SCRIPT}"),),
    )


_PLAIN: Any = {"route": PAGEABLE, "memory": "pageable", "mode": "memcpy", "bracket": "drained"}


@functools.cache
def make_measurements() -> tuple[runs.Measurement, ...]:
    """Measurements of all directions at two sizes, a missing one, and a hostile one."""
    unstable = machines.Remark(
        code="unstable", text="the median is known to 1.2 %, not to 0.5 %", fix="--budget 180s or --precision 2%"
    )
    return (
        *(make_measurement(nbytes, side) for side in ("h2d", "d2h") for nbytes in SIZES),
        *(make_measurement(nbytes, side, direction="both") for side in ("h2d", "d2h", "sum") for nbytes in SIZES),
        make_measurement(4 * KIB, slower=3.1, remarks=(unstable,), **_PLAIN),
        make_missing(**_PLAIN),
        make_hostile(),
    )


def make_parameters(**overrides: Any) -> runs.Parameters:
    parameters = runs.Parameters(
        device="0",
        directions=("h2d", "d2h", "both"),
        memories=("pageable", "pinned"),
        modes=("memcpy", "async"),
        sizes_bytes=SIZES,
        fresh=False,
        precision=0.005,
        budget_s=30.0,
        seed=20251121,
        min_rounds=8,
    )
    return msgspec.structs.replace(parameters, **overrides)


def make_run(**overrides: Any) -> runs.Run:
    """A complete run of `pyxfer ceiling`."""
    if "measurements" in overrides:  # from which the curves and the costs of page-locking follow
        overrides = {"curves": (), "locking": (), **overrides}
    return msgspec.structs.replace(_usual_run(), **overrides)


@functools.cache
def _usual_run() -> runs.Run:
    run = runs.Run(
        kind="ceiling",
        ended="complete",
        runtime="cuda",
        runtime_reason="a GPU answers",
        parameters=make_parameters(),
        device=make_device(),
        link=make_link(),
        placement=machines.Placement(
            device_node=Fact(0), cpus=Fact("0-15"), memory_node=Fact(0), pages_by_node=Fact({"0": 4096})
        ),
        environment=make_environment(),
        environment_after=make_environment(taken_at="2025-11-21T08:30:09+00:00", temperature_c=Fact(38)),
        duration_s=8.75,
        measurements=make_measurements(),
        curves=(
            runs.Curve(
                route=PINNED,
                direction="h2d",
                side="h2d",
                variant="warm",
                latency_s=Fact(2.33e-6),
                asymptote_gbps=Fact(55.6),
                half_bytes=Fact(129_500.0),
                worst_misfit=Fact(0.031),
            ),
        ),
        locking=(
            runs.LockingCost(
                memory="pinned",
                nbytes=16 * MIB,
                summary=stats.summarise([3.1e-3, 3.2e-3, 3.3e-3]),
                s_per_gib=Fact(0.205),
                pays_after_transfers=Fact(4),
            ),
        ),
        remarks=(machines.Remark(code="note", text=MARKUP, fix=None),),
    )
    return derived(run)


class Made(Mapping[str, Any]):
    """Documents by name, each made when it is first read: all test processes import them, and few tests need all."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers = makers
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
