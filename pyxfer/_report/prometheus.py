"""Runs as metrics for Prometheus, in the text format that node_exporter's textfile collector reads.

What is written is what was measured then; when that was is a metric of its own, because the collector takes no times.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

from pyxfer._document.examinations import is_beyond_peak
from pyxfer._document.runs import Fact, LinkState, Measurement, Run, Side
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric


_GIGA = 1e9
_DEVICE = ("device", "uuid")
_COPY = (*_DEVICE, "direction", "side", "memory", "mode", "size_bytes")
_SIDES: tuple[Side, ...] = ("h2d", "d2h")


class Exported(NamedTuple):
    """A run, and what the link has counted up to now where it could be read."""

    run: Run
    replays: Fact[int]


def exposition(exported: Sequence[Exported]) -> bytes:
    """All of them as text; of two runs of one device the first counts.

    Raises:
        UsageError: prometheus-client, which writes the format, is not installed.

    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise UsageError(
            "this needs prometheus-client, which is not installed: pip install 'pyxfer[prometheus]'"
        ) from None
    registry = CollectorRegistry()
    registry.register(_Collector(_one_a_device(exported)))
    return generate_latest(registry)


def beyond_peak(run: Run) -> list[Measurement]:
    """The copies that are left out, because they are quicker than their link can be."""
    return [each for each in _quickest(run) if is_beyond_peak(run, each)]


class _Collector:
    """What prometheus-client asks for metrics."""

    def __init__(self, exported: Sequence[Exported]) -> None:
        self._exported = exported

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: what there is depends on the runs."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every metric with its series."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        build = GaugeMetricFamily("pyxfer_build_info", "The pyxfer that wrote this.", labels=["version"])
        build.add_metric([_version()], 1)
        yield build
        for name, text, labels, rows in _gauges(self._exported):
            gauge = GaugeMetricFamily(name, text, labels=labels)
            for values, number in rows:
                gauge.add_metric([_label(value) for value in values], number)
            if rows:
                yield gauge
        replays = [(each, each.replays.value) for each in self._exported if each.replays.value is not None]
        if replays:
            counter = CounterMetricFamily(
                "pyxfer_link_replays", "Packets sent again since the driver was loaded.", labels=_DEVICE
            )
            for each, count in replays:
                counter.add_metric([_label(value) for value in _device(each.run)], count)
            yield counter


_Rows = list[tuple[tuple[object, ...], float]]


def _gauges(exported: Sequence[Exported]) -> Iterator[tuple[str, str, tuple[str, ...], _Rows]]:
    """Name, help, labels and rows."""
    runs = [each.run for each in exported]
    copies = [(run, each) for run in runs for each in _raw_copies(run)]
    yield (
        *("pyxfer_run_timestamp_seconds", "When the run was measured, in seconds since 1970.", _DEVICE),
        [(_device(run), taken) for run in runs if (taken := _taken_s(run)) is not None],
    )
    yield (
        *("pyxfer_device_info", "The device, its host and its driver.", (*_DEVICE, "name", "pci", "host", "driver")),
        [((*_device(run), *_named(run)), 1.0) for run in runs],
    )
    yield (
        *("pyxfer_copy_bandwidth_bytes_per_second", "Median bandwidth of raw copies between host and GPU.", _COPY),
        [(_copy(run, each), (each.gbps or 0.0) * _GIGA) for run, each in copies],
    )
    yield (
        *("pyxfer_copy_peak_ratio", "That bandwidth over the protocol peak of the link; 1 is all of it.", _COPY),
        [(_copy(run, each), each.of_peak) for run, each in copies if each.of_peak is not None],
    )
    yield (
        *("pyxfer_link_generation", "PCI Express generation of the link.", (*_DEVICE, "state")),
        [((*_device(run), name), float(state.generation)) for run in runs for name, state in _states(run)],
    )
    yield (
        *("pyxfer_link_lanes", "Lanes of the link.", (*_DEVICE, "state")),
        [((*_device(run), name), float(state.width)) for run in runs for name, state in _states(run)],
    )
    yield (
        *(
            "pyxfer_link_peak_bytes_per_second",
            "What the link carries on paper, packet headers taken off.",
        ),
        (*_DEVICE, "direction"),
        [
            ((*_device(run), side), peak * _GIGA)
            for run in runs
            for side in _SIDES
            if (peak := run.link.peak_gbps(side).value) is not None
        ],
    )


def _one_a_device(exported: Sequence[Exported]) -> list[Exported]:
    """Two runs of one device would give one series twice, which no reader takes."""
    first: dict[tuple[str, str], Exported] = {}
    for each in exported:
        first.setdefault(_device(each.run), each)
    return list(first.values())


def _raw_copies(run: Run) -> list[Measurement]:
    """The raw copies that have a bandwidth that can be believed."""
    return [each for each in _quickest(run) if not is_beyond_peak(run, each)]


def _quickest(run: Run) -> list[Measurement]:
    """Every raw copy over the link that has a bandwidth; of a way that several workers measured, the fastest."""
    best: dict[tuple[object, ...], Measurement] = {}
    for each in run.measurements:
        key = _copy(run, each)
        is_copy = each.nature is None and each.direction != "ingest"  # which stays in the host's memory
        counts = is_copy and each.variant == "warm" and each.gbps is not None
        if counts and each.route.startswith("raw.") and (each.gbps or 0.0) > _gbps(best.get(key)):
            best[key] = each
    return list(best.values())


def _gbps(measurement: Measurement | None) -> float:
    return 0.0 if measurement is None else measurement.gbps or 0.0


def _copy(run: Run, each: Measurement) -> tuple[object, ...]:
    return (*_device(run), each.direction, each.side, each.memory, each.mode, each.nbytes)


def _device(run: Run) -> tuple[str, str]:
    return str(run.device.index), run.device.uuid.value or ""


def _named(run: Run) -> tuple[str, str, str, str]:
    environment = run.environment
    return run.device.name, run.device.pci.value or "", environment.host, environment.driver.value or ""


def _states(run: Run) -> list[tuple[str, LinkState]]:
    link = run.link
    states = {"under_load": link.under_load, "slot_most": link.system_most, "device_most": link.device_most}
    return [(name, state.value) for name, state in states.items() if state.value is not None]


def _taken_s(run: Run) -> float | None:
    try:
        return datetime.datetime.fromisoformat(run.environment.taken_at).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _label(value: Any) -> str:
    """A label as text that can be written; what it holds is escaped by who writes it."""
    return str(value).encode(errors="backslashreplace").decode()


def _version() -> str:
    try:
        return metadata.version("pyxfer")
    except metadata.PackageNotFoundError:
        return "unknown"
