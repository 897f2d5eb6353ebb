"""Messages of workers survive packing, and the marker of their current step is readable after their end."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from framework_samples import make_aliased, make_refused, make_route_row
from frameworks import own_routes
from samples import make_link

import pyxfer
from pyxfer._document.machines import Fact, Placement, Remark, unknown
from pyxfer._document.runs import Tracing
from pyxfer._frameworks.messages import (
    Awake,
    Doing,
    Failed,
    Finished,
    FromWorker,
    Hello,
    Mark,
    Marker,
    OwnRoute,
    Reference,
    Refused,
    Rows,
    Stop,
    Task,
    ToWorker,
    Tracer,
    pack,
    unpack_order,
    unpack_report,
)

TASK = Task(
    worker="jax nostage",
    framework="jax",
    setting="nostage",
    routes=("jax.device-put-nostage",),
    own=(
        OwnRoute({"name": "jax.mine", "inflation": 2.0}, Reference("frameworks.own_routes", "Copied"), None),
        OwnRoute({"name": "jax.here"}, None, Reference("__main__", "make", b"/home/user/\xff.py")),
    ),
    device="GPU-6a1f2c3d",
    workload="image-batch",
    sizes=(196_608, 1 << 40),
    precision=0.005,
    budget_s=15.0,
    seed=(1 << 63) + 5,
    trace=False,
)
PLACEMENT = Placement(Fact(0), Fact("0-15"), unknown("no NUMA here"), Fact({"0": 4096}))
REPORTS: list[FromWorker] = [
    Hello("2.21.0", unknown("it was built without CUDA"), {"GPU memory": "grows with use"}, 3.25),
    Awake(make_link(), PLACEMENT),
    Doing("measuring", 0.5, "h2d 64 MiB \u00b1 1 %"),
    Rows(
        (
            make_route_row("torch", "torch.to", "h2d", 1 << 20, (1e-5, 18.0)),
            make_aliased("torch", "torch.ingest", 1 << 20),
            make_refused("torch", "torch.cpu", 4096),
        )
    ),
    Tracer(Fact(Tracing("/usr/lib/libcupti.so.12", 28))),
    Tracer(unknown("trace: unavailable: another profiler is at work in this process")),
    Rows(()),
    Refused("JAX is not installed: pip install jax"),
    Failed("RuntimeError: \x1b[31mno\x1b[0m"),
    Finished((Remark("cleanup", "Something could not be released", None),)),
]
ORDERS: list[ToWorker] = [TASK, Stop()]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_an_order_survives_packing(order: ToWorker) -> None:
    assert unpack_order(pack(order)) == order


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_a_report_survives_packing(report: FromWorker) -> None:
    assert unpack_report(pack(report)) == report


def test_a_missing_value_keeps_its_reason() -> None:
    rows = unpack_report(pack(Rows((make_refused("torch", "torch.to", 4096, "it has moved"),))))
    assert isinstance(rows, Rows)
    assert rows.measurements[0].first_s == unknown("it has moved")


def test_the_fields_of_a_route_recreate_it() -> None:
    route = own_routes.make_route("mine.loader", None, usual=True, inflation=4.0)
    words = {name: value for name, value in vars(route).items() if name not in ("copy", "image_batch")}
    order = unpack_order(pack(msgspec.structs.replace(TASK, own=(OwnRoute(words, None, None),))))
    assert isinstance(order, Task)
    assert pyxfer.Route(**order.own[0].fields) == route


@pytest.mark.parametrize("data", [b"", b"\xc1", pack(Doing("measuring", 0.0, ""))], ids=["empty", "noise", "a report"])
def test_a_worker_accepts_only_orders(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        unpack_order(data)


@pytest.mark.parametrize("data", [b"", b"\xc1", pack(Stop())], ids=["empty", "noise", "an order"])
def test_a_run_accepts_only_reports(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        unpack_report(data)


@pytest.fixture
def marker() -> Iterator[Marker]:
    marker = Marker()
    yield marker
    marker.close()


def test_a_step_is_read_through_another_handle(marker: Marker) -> None:
    Marker(marker.handle).set("torch.to", 4096, "timed")
    assert marker.read() == Mark("torch.to", 4096, "timed")


def test_a_shorter_step_replaces_a_longer_one(marker: Marker) -> None:
    marker.set("tf.data-prefetch-compatible", 1 << 30, "verified")
    marker.set("jax.x", 1, "timed")
    assert marker.read() == Mark("jax.x", 1, "timed")


def test_a_cleared_step_is_not_read(marker: Marker) -> None:
    marker.set("torch.to", 4096, "timed")
    marker.clear()
    assert marker.read() is None


def test_a_long_name_is_cut(marker: Marker) -> None:
    marker.set("mine." + "x" * 1000, 4096, "timed")
    assert marker.read() is None
