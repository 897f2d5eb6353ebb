"""What PyTorch and JAX record and refuse without a GPU, and routes of their own on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from route_checks import a_place

from pyxfer._frameworks import jax as jax_transfers
from pyxfer._frameworks import torch as torch_transfers
from pyxfer._frameworks.base import installed_version
from pyxfer._frameworks.context import RouteContext
from pyxfer.errors import RefusedError
from pyxfer.native import Engine

pytestmark = pytest.mark.filterwarnings("ignore")
NBYTES = 64 << 10


def on_cpu(transfer: torch_transfers.TorchTransfer) -> torch_transfers.TorchTransfer:
    """Use the CPU in place of the GPU."""
    transfer.device = transfer.torch.device("cpu")
    return transfer


def test_a_build_without_cuda_says_so(torch: Any) -> None:
    if torch.version.cuda is not None:
        pytest.skip("this torch was built with CUDA")
    reason = torch_transfers.FRAMEWORK.start(0, "").cuda.reason or ""
    assert reason.startswith(f"torch {torch.__version__} was built without CUDA: install a build with it")


def test_the_allocator_settings_are_recorded(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "pinned_use_cuda_host_register:True")
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    settings = torch_transfers.FRAMEWORK.start(None, "").settings
    assert settings["PYTORCH_ALLOC_CONF"] == "pinned_use_cuda_host_register:True"
    assert settings["PYTORCH_CUDA_ALLOC_CONF"] == "not set"
    assert settings["threads"] == str(torch.get_num_threads())


@pytest.mark.usefixtures("torch")
def test_the_noncontiguous_route_copies_every_second_column(context: RouteContext) -> None:
    transfer = on_cpu(torch_transfers.Noncontiguous(context))
    data = np.random.default_rng(1).integers(0, 256, NBYTES, np.uint8)
    transfer.write(data)
    for _ in range(2):  # both arrays that take turns
        transfer.refresh()
        transfer.run()
        assert not transfer.result.is_contiguous()
        assert np.array_equal(transfer.result.numpy().reshape(-1), data)


@pytest.mark.usefixtures("torch")
def test_channels_last_makes_the_channels_of_a_pixel_adjacent(context: RouteContext, engine: Engine) -> None:
    transfer = on_cpu(torch_transfers.ChannelsLast(context))
    pictures = np.arange(NBYTES, dtype=np.uint32).astype(np.uint8).reshape(-1, *torch_transfers.PICTURE)
    pictures[3, :, 5, 7] = (1, 2, 3, 4)
    with context.holding(pictures.reshape(-1)):
        transfer.refresh()
        transfer.run()
    in_memory = transfer.arrived().reshape(-1, 32, 32, 4)
    assert in_memory[3, 5, 7].tolist() == [1, 2, 3, 4]


@pytest.mark.usefixtures("torch")
def test_an_epoch_has_as_many_batches_as_its_transfer_declares(context: RouteContext) -> None:
    transfer = torch_transfers.LoaderPinned(context)
    transfer.refresh()
    batches = list(transfer.source)
    assert [batch.numel() for batch in batches] == [NBYTES] * transfer.copies


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("make", "nbytes", "why"),
    [
        (torch_transfers.ChannelsLast, 6000, "give multiples of 4096"),
        (torch_transfers.LoaderPinned, 4097, "give multiples of 8"),
    ],
)
def test_a_size_that_does_not_divide_is_refused(make: Any, nbytes: int, why: str, engine: Engine) -> None:
    with a_place(engine, nbytes) as context, pytest.raises(RefusedError, match=why):
        make(context)


# --- JAX ------------------------------------------------------------------------------------------------------------


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


def test_without_its_plugin_jax_has_the_reason_and_sees_no_gpu(jax: Any) -> None:
    if installed_version(jax_transfers.FRAMEWORK.gpu_distributions):
        pytest.skip("JAX's CUDA plugin is installed")
    reason = jax_transfers.FRAMEWORK.start(0, "").cuda.reason
    assert reason == f"jax {jax.__version__} is installed without its CUDA plugin: pip install 'jax[cuda13]'"
    with pytest.raises(RefusedError, match=r"^JAX sees no GPU: Unknown backend: 'gpu' requested"):
        jax_transfers.find_gpu(jax, 0)


@pytest.mark.usefixtures("jax")
def test_the_memory_settings_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", ".25")
    settings = jax_transfers.FRAMEWORK.start(None, "").settings
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
        jax_transfers.FRAMEWORK.start(None, jax_transfers.NOSTAGE)


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
