"""The choice of the engine, and its devices."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from pyxfer.errors import CudaError, CudaUnavailableError
from pyxfer.native import HOST, Engine, choose, load
from pyxfer.native._host import testing


def test_both_engines_have_their_runtime() -> None:
    assert (load("cuda").RUNTIME, load("host").RUNTIME) == ("cuda", "host")


def test_a_usable_gpu_is_chosen(as_gpu: Engine) -> None:
    choice = choose()
    assert (choice.engine, choice.runtime, choice.reason) == (as_gpu, "cuda", "")


def test_the_host_can_be_chosen_explicitly() -> None:
    choice = choose(HOST)
    assert (choice.engine, choice.runtime, choice.reason) == (load("host"), "host", "")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (35, "No NVIDIA driver answers here: install one (525 or later)"),
        (100, "check nvidia-smi, CUDA_VISIBLE_DEVICES"),
    ],
)
def test_without_a_usable_gpu_the_host_is_chosen_with_the_reason(as_gpu: Engine, code: int, advice: str) -> None:
    testing.set_no_driver(code)
    choice = choose()
    assert choice.runtime == "host"
    assert choice.reason.startswith("No usable GPU: ")
    assert advice in choice.reason
    assert "\n" not in choice.reason


def test_an_old_driver_is_named_in_the_reason(as_gpu: Engine) -> None:
    testing.fail("cudaGetDeviceCount", 1, 35)
    assert re.search(r"speaks CUDA 1\d\.\d and pyxfer needs 12\.0: install driver 525 or later", choose().reason)


@pytest.mark.parametrize("device", [0, HOST])
@pytest.mark.parametrize("code", [35, 100])
def test_a_required_gpu_that_is_missing_raises(as_gpu: Engine, code: int, device: int | str) -> None:
    testing.set_no_driver(code)
    with pytest.raises(CudaUnavailableError) as caught:
        choose(device, require_gpu=True)
    assert caught.value.code == code
    assert str(caught.value) == f"No usable GPU: {caught.value.hint}"
    assert "insufficient" not in str(caught.value)
    assert caught.value.hint


def test_other_errors_of_a_gpu_are_raised(as_gpu: Engine) -> None:
    testing.fail("cudaGetDeviceCount", 1, 802)
    with pytest.raises(CudaError, match=r"cudaErrorSystemNotReady \(802\).*nvidia-fabricmanager"):
        choose()


def test_importing_loads_no_engine_and_makes_no_call() -> None:
    script = (
        "import sys, pyxfer, pyxfer.native\n"
        "assert not [name for name in sys.modules if name in ('pyxfer.native._cuda', 'pyxfer.native._host')]\n"
        "pyxfer.native.load('host')\n"
        "assert sys.modules['pyxfer.native._host'].testing.calls() == {}\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_the_host_runtime_is_named_as_host_memory(engine: Engine) -> None:
    properties = engine.device_properties(0)
    assert properties.name == "host memory, not a PCIe link"
    assert properties.pci is None
    assert re.fullmatch(r"GPU(-[0-9a-f]{4,12}){5}", properties.uuid)


def test_driver_calls_are_found_by_name(engine: Engine) -> None:
    assert engine.driver_has("cuEventRecord", 12000)
    assert not engine.driver_has("cuTeleport", 12000)


def test_a_failed_look_up_finds_no_driver_call(engine: Engine) -> None:
    engine.memory_info(0)
    testing.fail("cudaGetDriverEntryPointByVersion", 1, 1)
    assert not engine.driver_has("cuEventRecord", 12000)
    engine.synchronize(0)  # the failed look-up has left no error
