"""The arguments of a frameworks run, checked before any worker starts."""

from __future__ import annotations

from typing import Any

import pytest
from frameworks import own_routes

from pyxfer._frameworks.place import IMAGE_BYTES
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
        "precision": 0.005,
        "budget_s": 1.0,
        "seed": 1,
    }
    return make_request(names, 0, runtime, **{**asked, **options})


def test_the_default_is_every_framework_in_both_directions() -> None:
    found = request()
    assert found.names == ("torch", "tensorflow", "cupy", "jax")
    assert found.directions == ("h2d", "d2h")
    assert found.sizes == tuple(4096 * 16**power for power in range(5))


def test_without_a_gpu_the_default_is_ingest() -> None:
    assert request(runtime="host").directions == ("ingest",)


def test_ingest_is_added_to_the_other_directions() -> None:
    assert request(ingest=True).directions == ("h2d", "d2h", "ingest")
    assert request(ingest=True, directions="d2h").directions == ("d2h", "ingest")


def test_the_owners_short_name_is_accepted() -> None:
    assert request(["tf", "tensorflow", "jax"]).names == ("tensorflow", "jax")


def test_the_projects_own_spelling_is_accepted() -> None:
    assert request("pytorch,TensorFlow").names == ("torch", "tensorflow")
    assert request(["CuPy", "JAX"], directions="H2D").names == ("cupy", "jax")


def test_each_setting_has_a_worker() -> None:
    found = request(["jax"])
    tasks = found.tasks(load_framework("jax"))
    assert [task.worker for task in tasks] == ["jax", "jax nostage"]
    assert tasks[1].routes == ("jax.device-put-nostage",)
    assert "jax.device-put-nostage" not in tasks[0].routes


def test_image_batch_has_sizes_in_batches() -> None:
    found = request(workload="image-batch", batches="1:512:x2")
    assert found.sizes == tuple(IMAGE_BYTES * 2**power for power in range(10))
    assert found.parameters().batches == tuple(2**power for power in range(10))
    assert found.directions == ("h2d",)


def test_a_registered_route_goes_to_the_worker_by_name() -> None:
    register_route(own_routes.make_route("mine.copied", own_routes.Copied))
    (task,) = request(["mine"], runtime="host").tasks(load_framework("mine"))
    (own,) = task.own
    assert own.copy == ("frameworks.own_routes", "Copied", None)
    assert own.image_batch is None
    assert own.fields["name"] == "mine.copied"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"names": ["mxnet"]}, r"Unknown framework 'mxnet'"),
        ({"routes": ["tf.constnat"]}, r"fits 'tf\.constnat'\. Did you mean tf\.constant"),
        ({"names": ["torch"], "routes": ["tf.*"]}, r"It belongs to tensorflow, which was not named"),
        ({"workload": "training"}, r"workload 'training' is unknown: choose one of copy, image-batch"),
        ({"directions": ["both"]}, r"directions 'both' is unknown: choose one of h2d, d2h"),
        ({"batches": "8"}, r"name that workload, or give sizes"),
        ({"workload": "image-batch", "sizes": "1MiB"}, r"has batches of images and no sizes"),
        ({"workload": "image-batch", "batches": [1 << 30]}, r"more than any GPU holds"),
        ({"workload": "image-batch", "directions": ["d2h"]}, r"supports the workload image-batch in the directions"),
        ({"workload": "image-batch", "runtime": "host"}, r"no GPU is usable here; see pyxfer info"),
        ({"sizes": "0"}, r"is not above zero"),
        ({"precision": 2.0}, r"precision 2.0 is not above zero"),
        ({"budget_s": -1.0}, r"budget_s -1.0 is not above zero"),
        ({"seed": -1}, r"seed -1 is not a whole number"),
    ],
)
def test_invalid_arguments_are_refused_with_valid_ones(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        request(**options)


def test_a_worker_does_not_start_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(IN_WORKER, "1")
    with pytest.raises(UsageError, match='put its calls under  if __name__ == "__main__"'):
        request()
