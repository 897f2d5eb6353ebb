"""The figures of a run of links that follow from its trials and its links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from pyxfer._document.links import Alone, Latency, LinkFlow, Links, SmallCopies, Traffic, alone_by_key, p99_of
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Rate
from pyxfer._links.rows import NO_TRIAL, _chased, _rate, _with_shares, interference, peak_of
from pyxfer._links.traffic import WRONG
from pyxfer._machine.link import derived_link
from pyxfer._measure import stats

T = TypeVar("T")
replace = msgspec.structs.replace


def derive_links(run: Links) -> Links:
    """The run with what follows from its trials and its links."""
    devices = tuple(
        replace(each, device=replace(each.device, runtime=run.runtime), link=derived_link(each.link))
        for each in run.devices
    )
    run = replace(run, devices=devices)
    alone = [_alone(row, run) for row in run.traffics]
    singles = alone_by_key(alone)
    traffics = tuple(_traffic(row, found, singles) for row, found in zip(run.traffics, alone, strict=True))
    sharing = run.sharing
    if sharing is not None:
        sharing = interference(traffics, run.parameters.devices, run.peers, sharing.tree)
    return replace(
        run,
        traffics=traffics,
        latencies=tuple(map(_latency, run.latencies)),
        small=tuple(map(_small, run.small)),
        sharing=sharing,
    )


def _if_known(before: Fact[T], follows: Fact[T]) -> Fact[T]:
    """What follows. Whether there is a value depends on more than the trials."""
    return before if before.value is None else follows


def _alone(row: Traffic, run: Links) -> Traffic:
    numbers = range(len(row.flows))
    flows = tuple(_flow(row, number, run) for number in numbers)
    rates = [flow.gbps for flow in flows if flow.gbps is not None]
    return replace(
        row,
        flows=flows,
        total=_if_known(row.total, _rate(row.valid, numbers, NO_TRIAL)),
        slowest_gbps=Fact(min(rates)) if rates else unknown(NO_TRIAL),
    )


def _flow(row: Traffic, number: int, run: Links) -> LinkFlow:
    flow = row.flows[number]
    rate = (
        unknown(WRONG) if flow.verified.value is False else _if_known(flow.rate, _rate(row.valid, [number], NO_TRIAL))
    )
    peak = peak_of(flow, {each.device.index: each for each in run.devices}, run.peers)
    share: Fact[float] = unknown(NO_TRIAL)
    if rate.value is not None and peak.value:
        share = Fact(rate.value.gbps / peak.value)
    return replace(flow, rate=rate, peak_share=share)


def _traffic(row: Traffic, found: Traffic, singles: Alone) -> Traffic:
    shared = _with_shares(found, singles)
    return replace(shared, flows=tuple(map(_with_known_share, row.flows, shared.flows)))


def _with_known_share(before: LinkFlow, flow: LinkFlow) -> LinkFlow:
    return replace(flow, alone_share=_if_known(before.alone_share, flow.alone_share))


def _latency(row: Latency) -> Latency:
    valid = [trial for trial in row.trials if trial.invalid is None]
    loads = [trial.load_gbps for trial in valid if trial.load_gbps is not None]
    each = sorted(ns for _, ns in row.multiprocessor_ns)
    return replace(
        row,
        p50=_if_known(row.p50, _chased([trial.p50_ns for trial in valid], NO_TRIAL)),
        p99=_if_known(row.p99, _chased(p99_of(valid), NO_TRIAL)),
        load_gbps=Fact(stats.summarise(loads).median_s) if loads else unknown(NO_TRIAL),
        fastest=_chased(each[:1], NO_TRIAL),
        slowest=_chased(each[-1:], NO_TRIAL),
    )


def _small(row: SmallCopies) -> SmallCopies:
    return replace(
        row,
        rate=_small_rate(row, row.rate, row.seconds),
        caller_rate=_small_rate(row, row.caller_rate, row.caller_seconds),
    )


def _small_rate(row: SmallCopies, before: Fact[Rate], seconds: Sequence[float]) -> Fact[Rate]:
    if row.verified.value is False or not seconds:
        return before if before.value is None else unknown(WRONG)
    return _if_known(before, Fact(stats.rate(row.nbytes, stats.summarise(seconds))))
