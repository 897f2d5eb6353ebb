"""Runs as Prometheus metrics, in the text format of node_exporter's textfile collector.

The time of measurement is a separate metric, because the collector accepts no timestamps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyxfer._doctor.case import SIDES
from pyxfer._document.examinations import is_beyond_peak
from pyxfer._document.machines import Fact, version_of
from pyxfer._document.runs import Measurement, Run
from pyxfer._report.tables import library
from pyxfer.units import parse_moment

if TYPE_CHECKING:
    from prometheus_client.core import Metric


_GIGA = 1e9
_DEVICE = ("device", "uuid")
_COPY = (*_DEVICE, "direction", "side", "memory", "mode", "size_bytes")
Gauge = tuple[str, str, tuple[str, ...], Sequence[tuple[tuple[object, ...], float]]]
"""Name, help, names of the labels, and rows of their values and the figure."""


class Exported(NamedTuple):
    run: Run
    replays: Fact[int]


def exposition(exported: Sequence[Exported]) -> bytes:
    """All metrics as text; of several runs of one device only the first is used."""
    first = {_device(one.run): one for one in reversed(exported)}  # two would write the same series twice
    order = dict.fromkeys(_device(one.run) for one in exported)
    return exposed(lambda: _families([first[device] for device in order]))


def exposed(collect: Callable[[], Iterable[Metric]]) -> bytes:
    client = library("prometheus_client", "Metrics need prometheus-client")
    text: bytes = client.generate_latest(SimpleNamespace(collect=collect))  # of a registry it uses no more
    return text


def beyond_peak(run: Run) -> list[Measurement]:
    return [copy for copy in _fastest(run) if is_beyond_peak(run, copy)]


def gauges(found: Iterable[Gauge]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    return (_filled(GaugeMetricFamily(name, text, labels=labels), rows) for name, text, labels, rows in found if rows)


def _filled(metric: Any, rows: Sequence[tuple[tuple[object, ...], float]]) -> Metric:
    """With rows; their labels are encodable text, and prometheus-client escapes quotes and line breaks."""
    for values, number in rows:
        metric.add_metric([str(value).encode(errors="backslashreplace").decode() for value in values], number)
    filled: Metric = metric
    return filled


def _families(exported: Sequence[Exported]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    build = GaugeMetricFamily("pyxfer_build_info", "Version of pyxfer that wrote this.", labels=["version"])
    yield _filled(build, [((version_of("pyxfer"),), 1.0)])
    yield from gauges(_gauges(exported))
    replays = [(_device(one.run), float(one.replays.value)) for one in exported if one.replays.value is not None]
    if replays:
        text = "Packets retransmitted since the driver was loaded."
        yield _filled(CounterMetricFamily("pyxfer_link_replays", text, labels=_DEVICE), replays)


def _gauges(exported: Sequence[Exported]) -> Iterator[Gauge]:
    devices = [(_device(one.run), one.run) for one in exported]
    environments = [one.run.environment for one in exported]
    copies = [(run, copy) for _, run in devices for copy in _fastest(run) if not is_beyond_peak(run, copy)]
    states = []
    for device, run in devices:
        known = {
            "under_load": run.link.under_load,
            "slot_most": run.link.system_most,
            "device_most": run.link.device_most,
        }
        states += [((*device, name), fact.value) for name, fact in known.items() if fact.value is not None]
    yield (
        *("pyxfer_run_timestamp_seconds", "When the run was measured, in seconds since 1970.", _DEVICE),
        [(device, parse_moment(run.environment.taken_at).timestamp()) for device, run in devices],
    )
    yield (
        *("pyxfer_device_info", "The device, its host and its driver.", (*_DEVICE, "name", "pci", "host", "driver")),
        [
            ((*device, run.device.name, run.device.pci.value or "", e.host, e.driver.value or ""), 1.0)
            for (device, run), e in zip(devices, environments, strict=True)
        ],
    )
    yield (
        *("pyxfer_copy_bandwidth_bytes_per_second", "Median bandwidth of raw copies between host and GPU.", _COPY),
        [(_labels(run, copy), (copy.gbps or 0.0) * _GIGA) for run, copy in copies],
    )
    yield (
        *("pyxfer_copy_peak_ratio", "The same bandwidth as a share of the protocol peak of the link.", _COPY),
        [(_labels(run, copy), copy.of_peak) for run, copy in copies if copy.of_peak is not None],
    )
    yield (
        *("pyxfer_link_generation", "PCI Express generation of the link.", (*_DEVICE, "state")),
        [(labels, float(state.generation)) for labels, state in states],
    )
    yield (
        *("pyxfer_link_lanes", "Lanes of the link.", (*_DEVICE, "state")),
        [(labels, float(state.width)) for labels, state in states],
    )
    peaks = [((*device, side), run.link.peak_gbps(side).value) for device, run in devices for side in SIDES]
    yield (
        *("pyxfer_link_peak_bytes_per_second", "Theoretical bandwidth of the link without packet headers."),
        (*_DEVICE, "direction"),
        [(labels, peak * _GIGA) for labels, peak in peaks if peak is not None],
    )


def _fastest(run: Run) -> list[Measurement]:
    """All raw copies over the link that have a bandwidth; if several workers measured one, the fastest."""
    best: dict[tuple[object, ...], Measurement] = {}
    for row in run.measurements:
        is_copy = row.route_info is None and row.direction != "ingest"  # ingest stays in host memory
        if is_copy and row.variant == "warm" and row.is_raw and row.gbps:
            known = best.setdefault(_labels(run, row), row)
            best[_labels(run, row)] = max(known, row, key=lambda each: each.gbps or 0.0)
    return list(best.values())


def _labels(run: Run, row: Measurement) -> tuple[object, ...]:
    return (*_device(run), row.direction, row.side, row.memory, row.mode, row.nbytes)


def _device(run: Run) -> tuple[str, str]:
    return str(run.device.index), run.device.uuid.value or ""
