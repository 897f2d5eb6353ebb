"""JAX's table and refusals, and its routes on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from pyxfer._frameworks import jax as jax_transfers
from pyxfer._frameworks.base import installed_version
from pyxfer._frameworks.context import RouteContext
from pyxfer._frameworks.jax import FRAMEWORK, NOSTAGE
from pyxfer.errors import RefusedError

pytestmark = pytest.mark.filterwarnings("ignore")
FRESH_START = """
from pyxfer._frameworks.jax import FRAMEWORK
print(FRAMEWORK.start(None, "nostage").settings["jax_pjrt_client_create_options"])
"""


@pytest.fixture
def cpu(jax: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The CPU in place of the GPU."""
    device = jax.local_devices(backend="cpu")[0]
    monkeypatch.setattr(jax_transfers, "find_gpu", lambda *_: device)
    return device


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


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("way", [jax_transfers.Asarray, jax_transfers.ToPinnedHost, jax_transfers.DownloadThroughRing])
def test_a_download_from_host_memory_is_refused(way: Any, context: RouteContext) -> None:
    transfer = way(context)
    with pytest.raises(RefusedError, match=r"^JAX keeps the source array in host memory$"):
        transfer.refresh()


def test_page_locked_memory_of_a_device_is_host_memory(jax: Any, cpu: Any, context: RouteContext) -> None:
    pinned = jax_transfers.sharding(jax, cpu, jax_transfers.PINNED_HOST)
    array = jax.device_put(jax.numpy.zeros(4), pinned)
    assert jax_transfers.ToPinnedHost(context).place_of(array) == "cpu"


def test_a_missing_kind_of_memory_is_refused(jax: Any, cpu: Any) -> None:
    with pytest.raises(RefusedError, match=rf"^not available in JAX {jax.__version__}: .* has no memory of kind tape$"):
        jax_transfers.sharding(jax, cpu, "tape")


@pytest.mark.usefixtures("cpu")
def test_staging_cannot_be_left_out_once_jax_has_started() -> None:
    with pytest.raises(RefusedError, match=r"^JAX has already started, too late to turn its staging off"):
        FRAMEWORK.start(None, NOSTAGE)


@pytest.mark.usefixtures("cpu")
def test_the_route_without_staging_refuses_a_jax_that_stages(context: RouteContext) -> None:
    with pytest.raises(RefusedError, match="be started with the option should_stage_host_to_device_transfers:false"):
        jax_transfers.DevicePutUnstaged(context)


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
