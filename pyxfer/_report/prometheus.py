"""Runs as Prometheus metrics, in the text format of node_exporter's textfile collector.

The time of measurement is a separate metric, because the collector accepts no timestamps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyxfer._document.examinations import is_beyond_peak
from pyxfer._document.links import Links, end_name
from pyxfer._document.machines import Fact, LinkState, Side, version_of
from pyxfer._document.runs import Measurement, Run
from pyxfer._report.tables import library
from pyxfer.units import parse_moment

if TYPE_CHECKING:
    from prometheus_client.core import Metric


_GIGA = 1e9
_DEVICE = ("device", "uuid")
_COPY = (*_DEVICE, "direction", "side", "memory", "mode", "size_bytes")
_SIDES: tuple[Side, ...] = ("h2d", "d2h")
Gauge = tuple[str, str, tuple[str, ...], Sequence[tuple[tuple[object, ...], float]]]
"""Name, help, names of the labels, and rows of their values and the figure."""


class Exported(NamedTuple):
    run: Run
    replays: Fact[int]


def exposition(exported: Sequence[Exported], links: Links | None = None) -> bytes:
    """All metrics as text; of several runs of one device only the first is used. `links`: the run that they are of."""
    return exposed(lambda: _families(_one_a_device(exported), links))


def exposed(collect: Callable[[], Iterable[Metric]]) -> bytes:
    """The metrics as text."""
    client = library("prometheus_client", "Metrics need prometheus-client")
    registry = client.CollectorRegistry()
    registry.register(_Collector(collect))
    text: bytes = client.generate_latest(registry)
    return text


def beyond_peak(run: Run) -> list[Measurement]:
    """The copies that are left out because they are faster than the link's peak."""
    return [copy for copy in _fastest(run) if is_beyond_peak(run, copy)]


class _Collector:
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self.collect = collect

    def describe(self) -> Iterable[Metric]:
        """Nothing: the metrics depend on the documents."""
        return ()


def gauges(found: Iterable[Gauge]) -> Iterator[Metric]:
    """The gauges that have rows."""
    from prometheus_client.core import GaugeMetricFamily

    for name, text, labels, rows in found:
        gauge = GaugeMetricFamily(name, text, labels=labels)
        for values, number in rows:
            gauge.add_metric([label_text(value) for value in values], number)
        if rows:
            yield gauge


def _families(exported: Sequence[Exported], links: Links | None) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    build = GaugeMetricFamily("pyxfer_build_info", "Version of pyxfer that wrote this.", labels=["version"])
    build.add_metric([version_of("pyxfer")], 1)
    yield build
    yield from gauges([*_gauges(exported), *(() if links is None else _gauges_of_links(links))])
    replays = [(one.run, one.replays.value) for one in exported if one.replays.value is not None]
    if replays:
        text = "Packets retransmitted since the driver was loaded."
        counter = CounterMetricFamily("pyxfer_link_replays", text, labels=_DEVICE)
        for run, count in replays:
            counter.add_metric([label_text(value) for value in _device(run)], count)
        yield counter


def _gauges(exported: Sequence[Exported]) -> Iterator[Gauge]:
    runs = [one.run for one in exported]
    copies = [(run, copy) for run in runs for copy in _raw_copies(run)]
    yield (
        *("pyxfer_run_timestamp_seconds", "When the run was measured, in seconds since 1970.", _DEVICE),
        [(_device(run), parse_moment(run.environment.taken_at).timestamp()) for run in runs],
    )
    yield (
        *("pyxfer_device_info", "The device, its host and its driver.", (*_DEVICE, "name", "pci", "host", "driver")),
        [((*_device(run), *_named(run)), 1.0) for run in runs],
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
        [((*_device(run), name), float(state.generation)) for run in runs for name, state in _states(run)],
    )
    yield (
        *("pyxfer_link_lanes", "Lanes of the link.", (*_DEVICE, "state")),
        [((*_device(run), name), float(state.width)) for run in runs for name, state in _states(run)],
    )
    yield (
        *(
            "pyxfer_link_peak_bytes_per_second",
            "Theoretical bandwidth of the link without packet headers.",
        ),
        (*_DEVICE, "direction"),
        [
            ((*_device(run), side), peak * _GIGA)
            for run in runs
            for side in _SIDES
            if (peak := run.link.peak_gbps(side).value) is not None
        ],
    )


def _gauges_of_links(links: Links) -> Iterator[Gauge]:
    host = links.environment.host
    singles = [row for row in links.traffics if row.group == "pairs" and len(row.flows) == 1 and row.gbps is not None]
    together = [row for row in links.traffics if row.group == "together" and row.case in ("h2d", "d2h", "both")]
    yield (
        *("pyxfer_links_together_bytes_per_second", "Bandwidth between the host and all GPUs at once."),
        ("host", "direction", "engine"),
        [((host, row.case, row.engine), row.gbps * _GIGA) for row in together if row.gbps is not None],
    )
    yield (
        *("pyxfer_links_pair_bytes_per_second", "Median bandwidth from one GPU to another by itself."),
        ("host", "case", "engine", "source", "destination"),
        [
            ((host, row.case, row.engine, row.flows[0].source, row.flows[0].destination), (row.gbps or 0.0) * _GIGA)
            for row in singles
        ],
    )
    keeps = () if links.sharing is None else links.sharing.keeps
    yield (
        *("pyxfer_links_kept_ratio", "What a GPU keeps of its bandwidth while another one copies."),
        ("host", "direction", "device", "beside"),
        [
            ((host, keep.direction, keep.device, keep.beside), keep.share.value.value)
            for keep in keeps
            if keep.share.value is not None
        ],
    )
    quick = [row for row in links.latencies if row.hops < row.places and row.node is None]
    yield (
        *("pyxfer_links_latency_seconds", "Time of one dependent load, by the share of the link's rate beside it."),
        ("host", "device", "target", "quantile", "load"),
        [
            ((host, row.device, end_name(row.target), quantile, f"{row.load:g}"), fact.value.ns * 1e-9)
            for row in quick
            for quantile, fact in (("0.5", row.p50), ("0.99", row.p99))
            if fact.value is not None
        ],
    )


def _one_a_device(exported: Sequence[Exported]) -> list[Exported]:
    """The first run of every device, because two would write the same series twice."""
    first: dict[tuple[str, str], Exported] = {}
    for one in exported:
        first.setdefault(_device(one.run), one)
    return list(first.values())


def _raw_copies(run: Run) -> list[Measurement]:
    return [copy for copy in _fastest(run) if not is_beyond_peak(run, copy)]


def _fastest(run: Run) -> list[Measurement]:
    """All raw copies over the link that have a bandwidth; if several workers measured one, the fastest."""
    best: dict[tuple[object, ...], Measurement] = {}
    for row in run.measurements:
        key = _labels(run, row)
        is_copy = row.route_info is None and row.direction != "ingest"  # ingest stays in host memory
        counts = is_copy and row.variant == "warm" and row.gbps is not None
        if counts and row.is_raw and (row.gbps or 0.0) > _gbps(best.get(key)):
            best[key] = row
    return list(best.values())


def _gbps(measurement: Measurement | None) -> float:
    return 0.0 if measurement is None else measurement.gbps or 0.0


def _labels(run: Run, row: Measurement) -> tuple[object, ...]:
    return (*_device(run), row.direction, row.side, row.memory, row.mode, row.nbytes)


def _device(run: Run) -> tuple[str, str]:
    return str(run.device.index), run.device.uuid.value or ""


def _named(run: Run) -> tuple[str, str, str, str]:
    environment = run.environment
    return run.device.name, run.device.pci.value or "", environment.host, environment.driver.value or ""


def _states(run: Run) -> list[tuple[str, LinkState]]:
    link = run.link
    states = {"under_load": link.under_load, "slot_most": link.system_most, "device_most": link.device_most}
    return [(name, state.value) for name, state in states.items() if state.value is not None]


def label_text(value: Any) -> str:
    """A label as encodable text; prometheus-client escapes quotes and line breaks."""
    return str(value).encode(errors="backslashreplace").decode()
