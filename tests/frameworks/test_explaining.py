"""`explain`: the measured routes, and refused arguments."""

from __future__ import annotations

from typing import Any

import pytest
from frameworks import own_routes

import pyxfer
from pyxfer._document.runs import Measurement, OneWay

QUICK: dict[str, Any] = {"device": "host", "budget_s": 0.6, "seed": 1}


def rows(run: pyxfer.Run) -> dict[str, Measurement]:
    return {each.route: each for each in run.measurements}


def register(*makes: Any, **words: Any) -> None:
    for make in makes:
        pyxfer.register_route(own_routes.make_route(f"mine.{make.__name__.lower()}", make, **words))


def test_a_route_is_measured_beside_its_alternatives() -> None:
    register(own_routes.Slow, own_routes.Copied)
    run = pyxfer.explain("mine.slow", "64KiB", **QUICK)
    assert (run.kind, run.ended, run.parameters.explained) == ("explain", "complete", "mine.slow")
    assert run.parameters.sizes_bytes == (64 << 10,)
    found = rows(run)
    assert set(found) == {"mine.slow", "mine.copied", "raw.host-copy"}
    slow, copied = ({trial.round for trial in found[name].trials} for name in ("mine.slow", "mine.copied"))
    assert slow & copied
    breakdown = found["mine.slow"].breakdown.value
    assert breakdown is not None
    assert breakdown.seconds("preparing") >= 0.02


def test_routes_of_other_workers_are_not_measured() -> None:
    register(own_routes.Copied)
    register(own_routes.Aliased, setting="other")
    run = pyxfer.explain("mine.aliased", "64KiB", **QUICK)
    assert [worker.setting for worker in run.workers] == ["other"]
    assert set(rows(run)) == {"mine.aliased", "raw.host-copy"}


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_a_raw_route_is_measured_beside_the_other_raw_routes(direction: OneWay) -> None:
    run = pyxfer.explain("raw.registered-streams:2", "256KiB", direction=direction, **QUICK)
    assert (run.kind, run.workers, run.parameters.explained) == ("explain", (), "raw.registered-streams:2")
    assert {each.direction for each in run.measurements} == {direction}
    found = rows(run)
    assert {"raw.pageable-memcpy", "raw.pinned-async", "raw.registered-async"} <= set(found)
    dma = found["raw.registered-streams:2"].dma.value
    assert dma is not None
    assert (dma.nbytes, dma.copies) == (256 << 10, 2)


@pytest.mark.slow
def test_staged_copies_are_measured_only_beside_pageable_memory() -> None:
    pageable = pyxfer.explain("raw.pageable-memcpy", "256KiB", direction="d2h", **QUICK)
    assert {"raw.pageable-staged", "raw.pinned-async"} <= set(rows(pageable))
    staged = pyxfer.explain("raw.pageable-staged", "256KiB", **QUICK)
    assert {"raw.pageable-staged", "raw.pageable-memcpy", "raw.pinned-async"} <= set(rows(staged))
    assert "raw.pageable-staged" not in rows(pyxfer.explain("raw.pinned-async", "256KiB", **QUICK))


def test_a_raw_route_is_h2d_by_default() -> None:
    run = pyxfer.explain("raw.pinned-async", 4096, **QUICK)
    assert {each.direction for each in run.measurements} == {"h2d"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("torch.too", "Unknown route 'torch.too'. Did you mean torch.to"),
        ("raw.pinned", "Did you mean raw.pinned-"),
        ("xxxxxx", "Unknown route 'xxxxxx'. See pyxfer list routes."),
    ],
)
def test_an_unknown_route_is_refused_with_similar_names(name: str, meant: str) -> None:
    with pytest.raises(pyxfer.UsageError) as refusal:
        pyxfer.explain(name, **QUICK)
    assert meant in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"size": "much"}, "'much' is not a size"),
        ({"size": "0"}, "size '0' is not above zero"),
        ({"size": -1}, "size -1 is not a whole number of at least 1: give bytes"),
        ({"direction": "up"}, "direction 'up' is unknown: choose one of h2d, d2h"),
        ({"direction": "both"}, "direction 'both' is unknown: choose one of h2d, d2h"),
        ({"budget_s": 0}, "budget_s 0 is not above zero"),
        ({"require_gpu": True}, "leave out one of the two"),
        ({"route": 7}, "A route is named by text, such as torch.to; got 7."),
        (
            {"route": "raw.host-copy"},
            "raw.host-copy is the ceiling of ingest routes and cannot be explained alone.",
        ),
    ],
)
def test_invalid_arguments_are_refused_before_any_measurement(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(pyxfer.UsageError) as refusal:
        pyxfer.explain(**{"route": "raw.pinned-async", **QUICK, **arguments})
    assert words in str(refusal.value)


def test_a_direction_other_than_the_routes_is_refused() -> None:
    with pytest.raises(pyxfer.UsageError, match=r"torch\.to goes h2d; a direction is for raw routes, which have both"):
        pyxfer.explain("torch.to", direction="d2h", **QUICK)


def test_a_route_of_images_needs_whole_images() -> None:
    register(own_routes.Copied, direction="h2d", bracket="drained", copy=None, image_batch=own_routes.Copied)
    with pytest.raises(pyxfer.UsageError, match="take the size 196608"):
        pyxfer.explain("mine.copied", "64KiB", **QUICK)
    run = pyxfer.explain("mine.copied", 2 * 196608, **QUICK)
    assert (run.parameters.workload, run.parameters.batches) == ("image-batch", (2,))


def test_without_a_gpu_a_route_over_the_link_has_the_reason() -> None:
    register(own_routes.Copied, direction="h2d", bracket="drained")
    found = rows(pyxfer.explain("mine.copied", "64KiB", **QUICK))["mine.copied"]
    assert found.rate.reason == "the device is host memory, without a link"
    assert found.breakdown.reason == found.dma.reason == found.rate.reason
