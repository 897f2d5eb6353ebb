"""The arguments of a frameworks run, and of explain with the routes that it measures."""

from __future__ import annotations

from typing import Any

import pytest
from frameworks import own_routes

import pyxfer
from pyxfer._ceiling.plans import limits_of
from pyxfer._document.runs import Measurement, OneWay
from pyxfer._frameworks.base import IMAGE_BYTES
from pyxfer._frameworks.messages import Reference
from pyxfer._frameworks.process import IN_WORKER
from pyxfer._frameworks.registry import load_framework, register_route
from pyxfer._frameworks.session import Request, make_request
from pyxfer.errors import UsageError


def request(names: Any = None, runtime: Any = "cuda", **options: Any) -> Request:
    asked: dict[str, Any] = {
        "routes": (),
        "workload": "copy",
        "sizes": None,
        "batches": None,
        "directions": None,
        "ingest": False,
    }
    return make_request(names, 0, runtime, limits_of(0.005, 1.0, 1), **{**asked, **options})


@pytest.mark.parametrize(
    ("options", "names", "directions"),
    [
        ({}, ("torch", "tensorflow", "cupy", "jax"), ("h2d", "d2h")),
        ({"names": "jax", "runtime": "host"}, ("jax",), ("ingest",)),
        ({"names": ["tf", "tensorflow", "jax"], "ingest": True}, ("tensorflow", "jax"), ("h2d", "d2h", "ingest")),
        (
            {"names": "pytorch,TensorFlow", "ingest": True, "directions": "d2h"},
            ("torch", "tensorflow"),
            ("d2h", "ingest"),
        ),
        ({"names": ["CuPy", "TensorFlow"], "directions": "H2D"}, ("cupy", "tensorflow"), ("h2d",)),
    ],
)
def test_frameworks_and_directions_have_defaults_and_several_spellings(
    options: dict[str, Any], names: tuple[str, ...], directions: tuple[str, ...]
) -> None:
    found = request(**options)
    assert (found.names, found.directions) == (names, directions)
    assert found.sizes == tuple(4096 * 16**power for power in range(5))


def test_each_setting_has_a_worker() -> None:
    jax = load_framework("jax")
    tasks = request(["jax"], all_settings=True).tasks(jax)
    assert [task.worker for task in tasks] == ["jax", "jax nostage"]
    assert tasks[1].routes == ("jax.device-put-nostage",)
    assert "jax.device-put-nostage" not in tasks[0].routes
    assert [(task.worker, task.traces_all_sizes) for task in request(["jax"]).tasks(jax)] == [("jax", False)]
    assert request(["jax"], routes="jax.device-put").tasks(jax)[0].traces_all_sizes
    assert [task.worker for task in request(["jax"], routes="jax.device-put*").tasks(jax)] == ["jax", "jax nostage"]


def test_image_batch_has_sizes_in_batches() -> None:
    found = request(workload="image-batch", batches="1:512:x2")
    assert found.sizes == tuple(IMAGE_BYTES * 2**power for power in range(10))
    assert found.parameters().batches == tuple(2**power for power in range(10))
    assert found.directions == ("h2d",)


@pytest.mark.parametrize(
    ("conversions", "forms", "casts"),
    [
        ((None, "host", None), ("nhwc-float32", "nchw-float32"), ("host",)),
        (("NCHW", None, None), ("nchw-float32",), ("host", "device")),
        (
            (None, None, ["uint8", "float16"]),
            ("nhwc-uint8", "nhwc-float16", "nchw-uint8", "nchw-float16"),
            ("host", "device"),
        ),
    ],
)
def test_a_layout_a_cast_or_a_dtype_adds_orders_of_work(conversions: Any, forms: Any, casts: Any) -> None:
    found = request(["torch"], workload="image-batch", conversions=conversions)
    parameters = found.parameters()
    assert (parameters.forms, parameters.casts, parameters.batches) == (forms, casts, (128, 512))
    (task,) = found.tasks(load_framework("torch"))
    assert (task.forms, task.casts) == (forms, casts)
    assert len(set(task.routes)) == len(task.routes)
    assert {"torch.to", "torch.upload-converted"} < set(task.routes)


def test_without_these_there_are_no_orders_of_work() -> None:
    (task,) = request(["torch"], workload="image-batch").tasks(load_framework("torch"))
    assert "torch.upload-converted" not in task.routes
    assert (task.forms, task.casts) == ((), ())


def test_orders_of_work_can_be_measured_alone_and_in_other_batches() -> None:
    found = request(
        ["jax"],
        workload="image-batch",
        conversions=("nchw", None, None),
        batches="8",
        routes=("jax.*-on-*", "*-converted"),
    )
    (task,) = found.tasks(load_framework("jax"))
    assert {name.partition(".")[2] for name in task.routes} == {
        *("convert-on-device", "cast-on-host", "permute-on-host", "convert-on-host", "upload-converted")
    }
    assert found.sizes == (8 * IMAGE_BYTES,)


def test_a_registered_route_goes_to_the_worker_by_name() -> None:
    register_route(own_routes.make_route("mine.copied", own_routes.Copied))
    (task,) = request(["mine"], runtime="host").tasks(load_framework("mine"))
    (own,) = task.own
    assert own.copy == Reference("frameworks.own_routes", "Copied")
    assert own.image_batch is None
    assert own.fields["name"] == "mine.copied"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"names": ["mxnet"]}, r"Unknown framework 'mxnet'"),
        ({"routes": ["tf.constnat"]}, r"fits 'tf\.constnat'\. Did you mean tf\.constant"),
        ({"names": ["torch"], "routes": ["tf.*"]}, r"It belongs to tensorflow, which was not named"),
        ({"workload": "training"}, r"workload 'training' is unknown: choose one of copy, image-batch"),
        ({"directions": ["both"]}, r"direction 'both' is unknown: choose one of h2d, d2h"),
        ({"batches": "8"}, r"name that workload, or give sizes"),
        ({"workload": "image-batch", "sizes": "1MiB"}, r"has batches of images and no sizes"),
        ({"workload": "image-batch", "batches": [1 << 30]}, r"more than any GPU holds"),
        ({"workload": "image-batch", "directions": ["d2h"]}, r"supports the workload image-batch in the directions"),
        ({"workload": "image-batch", "runtime": "host"}, r"no GPU is usable here; see pyxfer info"),
        ({"sizes": "0"}, r"is not above zero"),
        ({"conversions": ("nchw", None, None)}, r"A layout belongs to the workload image-batch"),
        ({"conversions": (None, None, "float32")}, r"A dtype belongs to the workload image-batch"),
        (
            {"workload": "image-batch", "conversions": ("flat", None, None)},
            r"layout 'flat' is unknown: choose one of nhwc",
        ),
        ({"workload": "image-batch", "conversions": (None, [], None)}, r"cast"),
    ],
)
def test_invalid_arguments_are_refused_with_valid_ones(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        request(**options)


def test_a_worker_does_not_start_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(IN_WORKER, "1")
    with pytest.raises(UsageError, match='put its calls under  if __name__ == "__main__"'):
        request()


QUICK: dict[str, Any] = {"device": "host", "budget": 0.6, "seed": 1}


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


@pytest.mark.parametrize("direction", [None, "d2h"])
def test_a_raw_route_is_measured_beside_the_other_raw_routes(direction: OneWay | None) -> None:
    run = pyxfer.explain("raw.registered-streams:2", "256KiB", direction=direction, **QUICK)
    assert (run.kind, run.workers, run.parameters.explained) == ("explain", (), "raw.registered-streams:2")
    assert {each.direction for each in run.measurements} == {direction or "h2d"}
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"size": "much"}, "'much' is not a size"),
        ({"size": "0"}, "size '0' is not above zero"),
        ({"size": -1}, "size -1 is not a whole number of at least 1: give bytes"),
        ({"direction": "up"}, "direction 'up' is unknown: choose one of h2d, d2h"),
        ({"direction": "both"}, "direction 'both' is unknown: choose one of h2d, d2h"),
        ({"budget": 0}, "budget 0 is not above zero"),
        ({"require_gpu": True}, "leave out one of the two"),
        ({"route": 7}, "A route is named by text, such as torch.to; got 7."),
        ({"route": "raw.host-copy"}, "raw.host-copy is the ceiling of ingest routes and cannot be explained alone."),
        ({"route": "torch.too"}, "Unknown route 'torch.too'. Did you mean torch.to"),
        ({"route": "raw.pinned"}, "Did you mean raw.pinned-"),
        ({"route": "xxxxxx"}, "Unknown route 'xxxxxx'. See pyxfer list routes."),
        ({"route": "torch.to", "direction": "d2h"}, "torch.to goes h2d; a direction is for raw routes"),
    ],
)
def test_invalid_arguments_are_refused_before_any_measurement(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(pyxfer.UsageError) as refusal:
        pyxfer.explain(**{"route": "raw.pinned-async", **QUICK, **arguments})
    assert words in str(refusal.value)


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
