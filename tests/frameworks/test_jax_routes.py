"""JAX's table and refusals, and its routes on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from route_checks import HostPlace, a_place, break_import, copies_touched, import_or_skip, usual_directions, verify

from pyxfer._frameworks import jax as jax_host_transfers
from pyxfer._frameworks import jax as jax_transfers
from pyxfer._frameworks.base import RefusedError, installed_version
from pyxfer._frameworks.jax import FRAMEWORK, NOSTAGE
from pyxfer._frameworks.place import IMAGE_BYTES

if TYPE_CHECKING:
    from pyxfer._frameworks.base import Route
    from pyxfer._frameworks.place import Place
    from pyxfer.native import Engine

pytestmark = pytest.mark.filterwarnings("ignore")
NBYTES = 64 << 10
ROUTES = {route.name: route for route in FRAMEWORK.routes}
INGESTING = [route for route in FRAMEWORK.routes if route.direction == "ingest"]
FRESH_START = """
from pyxfer._frameworks.jax import FRAMEWORK
print(FRAMEWORK.start(None, "nostage").settings["jax_pjrt_client_create_options"])
"""


@pytest.fixture
def jax() -> Any:
    return import_or_skip("jax")


@pytest.fixture
def cpu(jax: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The CPU in place of the GPU."""
    device = jax.local_devices(backend="cpu")[0]
    monkeypatch.setattr(jax_transfers, "find_gpu", lambda *_: device)
    return device


@pytest.fixture
def place(engine: Engine) -> Iterator[Place]:
    with a_place(engine, NBYTES, HostPlace) as made:
        yield made


def test_the_table_has_every_documented_route() -> None:
    promised = (
        "device-put device-put-pinned device-put-nostage pinned-host-to-device upload asarray to-pinned-host "
        "download download-into ingest ingest-device-put"
    )
    assert [route.name for route in FRAMEWORK.routes] == [f"jax.{name}" for name in promised.split()]


def test_each_direction_has_one_usual_route() -> None:
    assert usual_directions(FRAMEWORK) == ["d2h", "h2d", "ingest"]


def test_hidden_streams_are_drained() -> None:
    assert {route.bracket for route in FRAMEWORK.routes if route.direction != "ingest"} == {"drained"}


def test_routes_through_the_ring_copy_pageable_arrays_once_into_pinned_memory() -> None:
    through = [route for route in FRAMEWORK.routes if route.staged]
    assert [route.name for route in through] == ["jax.upload", "jax.download", "jax.download-into"]
    assert {(route.memory, route.host_copies, route.dma) for route in through} == {("pageable", 1, "pinned")}
    assert {route.returns for route in through} == {"done"}


def test_only_the_route_without_staging_has_a_setting() -> None:
    assert [route.name for route in FRAMEWORK.routes if route.setting] == ["jax.device-put-nostage"]


def test_the_environment_keeps_jax_from_allocating_the_whole_gpu() -> None:
    assert FRAMEWORK.environment["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_without_jax_the_refusal_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(RefusedError, match=r"^JAX is not installed: pip install 'jax\[cuda13\]'"):
        FRAMEWORK.start(None, "")


def test_a_broken_installation_is_distinguished_from_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_import("jax", tmp_path, monkeypatch)
    with pytest.raises(RefusedError, match=r"^JAX is installed and cannot be imported: libcublas\.so\.12"):
        FRAMEWORK.start(None, "")


def test_ingest_alone_needs_no_gpu(jax: Any) -> None:
    started = FRAMEWORK.start(None, "")
    assert started.version == jax.__version__
    assert started.cuda.reason == "no GPU was requested"


def test_jax_without_its_plugin_has_the_reason(jax: Any) -> None:
    if installed_version(FRAMEWORK.gpu_distributions):
        pytest.skip("JAX's CUDA plugin is installed")
    reason = FRAMEWORK.start(0, "").cuda.reason
    assert reason == f"jax {jax.__version__} is installed without its CUDA plugin: pip install 'jax[cuda13]'"


def test_a_gpu_that_jax_does_not_see_is_refused(jax: Any) -> None:
    if installed_version(FRAMEWORK.gpu_distributions):
        pytest.skip("JAX's CUDA plugin is installed")
    with pytest.raises(RefusedError, match=r"^JAX sees no GPU: Unknown backend: 'gpu' requested"):
        jax_transfers.find_gpu(jax, 0)


@pytest.mark.usefixtures("jax")
def test_the_memory_settings_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", ".25")
    settings = FRAMEWORK.start(None, "").settings
    assert settings["XLA_PYTHON_CLIENT_MEM_FRACTION"] == ".25"
    assert settings[jax_transfers.OPTIONS] == "not set"


@pytest.mark.usefixtures("jax")
@pytest.mark.parametrize("route", INGESTING, ids=lambda route: route.name)
def test_an_ingest_route_has_the_bytes_and_aliases_the_array_as_described(route: Route, engine: Engine) -> None:
    assert route.copy is not None
    with a_place(engine, NBYTES) as place:
        transfer = route.copy(place)
        first, second = (verify(transfer, place, engine, seed) for seed in (1, 2))
    assert first.right
    assert second.right
    assert second.where == "cpu"
    assert second.lent == (route.host_copies == 0)


@pytest.mark.usefixtures("jax")
@pytest.mark.parametrize("route", INGESTING, ids=lambda route: route.name)
def test_an_ingest_route_copies_as_often_as_described(route: Route, engine: Engine) -> None:
    assert route.copy is not None
    nbytes = 48 << 20
    with a_place(engine, nbytes) as place:
        assert copies_touched(route.copy(place), nbytes) == route.host_copies


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    "way",
    [
        jax_transfers.DevicePut,
        jax_transfers.DevicePutPinned,
        jax_transfers.PinnedHostToDevice,
        jax_transfers.UploadThroughRing,
    ],
)
def test_an_upload_has_the_expected_bytes_and_knows_that_they_are_on_the_cpu(
    way: type[jax_transfers.Upload], place: Place, engine: Engine
) -> None:
    transfer = way(place)
    first, second = (verify(transfer, place, engine, seed) for seed in (1, 2))
    assert first.right
    assert second.right
    assert second.where == "cpu"


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    "way", [jax_transfers.ImageBatch, jax_transfers.ImageBatchPinned, jax_transfers.ImageBatchThroughRing]
)
def test_an_image_batch_gives_the_first_row_of_pixels(way: type[jax_transfers.ImageBatch], engine: Engine) -> None:
    with a_place(engine, 2 * IMAGE_BYTES) as place:
        transfer = way(place)
        first, second = (verify(transfer, place, engine, seed) for seed in (1, 2))
    assert first.right
    assert second.right
    assert second.arrived.shape == (256, 3)
    assert second.where == "cpu"


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    "way", [jax_host_transfers.Asarray, jax_host_transfers.ToPinnedHost, jax_host_transfers.DownloadThroughRing]
)
def test_a_download_from_host_memory_is_refused(way: Any, place: Place) -> None:
    transfer = way(place)
    with pytest.raises(RefusedError, match=r"^JAX keeps the source array in host memory$"):
        transfer.refresh()


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("name", ["jax.download", "jax.download-into"])
def test_a_download_through_the_ring_has_the_arrays_current_bytes(
    name: str, place: Place, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        jax_host_transfers, "place_of", lambda _: "gpu"
    )  # the array is on the CPU here, and would be refused
    make = ROUTES[name].copy
    assert make is not None
    transfer = make(place)
    seen = [verify(transfer, place, engine, seed) for seed in (1, 2, 3, 4)]  # each target that takes turns, and again
    assert all(each.right and each.where == "cpu" for each in seen)


def test_page_locked_memory_of_a_device_is_host_memory(jax: Any, cpu: Any) -> None:
    pinned = jax_transfers.sharding(jax, cpu, jax_transfers.PINNED_HOST)
    assert jax_transfers.place_of(jax.device_put(jax.numpy.zeros(4), pinned)) == "cpu"


def test_a_missing_kind_of_memory_is_refused(jax: Any, cpu: Any) -> None:
    with pytest.raises(RefusedError, match=rf"^not available in JAX {jax.__version__}: .* has no memory of kind tape$"):
        jax_transfers.sharding(jax, cpu, "tape")


@pytest.mark.usefixtures("cpu")
def test_an_image_batch_of_a_size_that_does_not_divide_is_refused(place: Place) -> None:
    with pytest.raises(RefusedError, match="65536 bytes are not a whole number of images"):
        jax_transfers.ImageBatch(place)


@pytest.mark.usefixtures("cpu")
def test_staging_cannot_be_left_out_once_jax_has_started() -> None:
    with pytest.raises(RefusedError, match=r"^JAX has already started, too late to turn its staging off"):
        FRAMEWORK.start(None, NOSTAGE)


@pytest.mark.usefixtures("cpu")
def test_the_route_without_staging_refuses_a_jax_that_stages(place: Place) -> None:
    with pytest.raises(RefusedError, match="be started with the option should_stage_host_to_device_transfers:false"):
        jax_transfers.DevicePutUnstaged(place)


@pytest.mark.usefixtures("jax")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "{'should_stage_host_to_device_transfers': False}"),
        ("node_id:0", "JAX_PJRT_CLIENT_CREATE_OPTIONS is set, and would be overwritten (node_id:0): unset it"),
    ],
)
def test_a_new_process_can_turn_staging_off_unless_the_user_has_set_the_option(given: str, said: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PJRT_CLIENT_CREATE_OPTIONS": given}
    ran = subprocess.run(
        [sys.executable, "-c", FRESH_START], env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert said in ran.stdout + ran.stderr
