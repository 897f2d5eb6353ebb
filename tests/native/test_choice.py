from __future__ import annotations

import re
import subprocess
import sys
from types import ModuleType

import pytest

from pyxfer import native
from pyxfer.errors import CudaError, CudaUnavailableError
from pyxfer.native import HOST, Engine, choose, load
from pyxfer.native._host import testing


@pytest.fixture
def as_gpu(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The host runtime in the GPU engine's place: what it is told to say about a driver is what a machine would say."""
    real = native._module

    def module(name: str) -> ModuleType:
        return real("_host" if name == "_cuda" else name)

    monkeypatch.setattr(native, "_module", module)
    return engine


def test_the_two_engines_say_which_they_are() -> None:
    assert (load("cuda").RUNTIME, load("host").RUNTIME) == ("cuda", "host")


def test_a_gpu_that_answers_is_chosen_without_a_word(as_gpu: Engine) -> None:
    choice = choose()
    assert (choice.engine, choice.runtime, choice.reason) == (as_gpu, "cuda", "")


def test_the_host_is_chosen_without_a_word_where_it_was_asked_for() -> None:
    choice = choose(HOST)
    assert (choice.engine, choice.runtime, choice.reason) == (load("host"), "host", "")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (35, "No NVIDIA driver answers here: install one (525 or later)"),
        (100, "check nvidia-smi, CUDA_VISIBLE_DEVICES"),
    ],
)
def test_without_a_usable_gpu_the_host_is_chosen_and_one_line_says_why(as_gpu: Engine, code: int, advice: str) -> None:
    testing.set_no_driver(code)
    choice = choose()
    assert choice.runtime == "host"
    assert choice.reason.startswith("No usable GPU: ")
    assert advice in choice.reason
    assert "\n" not in choice.reason


def test_a_driver_that_is_too_old_is_no_usable_gpu_and_the_line_says_what_it_must_be(as_gpu: Engine) -> None:
    testing.fail("cudaGetDeviceCount", 1, 35)
    assert re.search(r"speaks CUDA 1\d\.\d and pyxfer needs 12\.0: install driver 525 or later", choose().reason)


def test_a_machine_with_a_driver_and_no_device_has_no_usable_gpu(as_gpu: Engine) -> None:
    testing.set_device_count(0)
    assert choose().runtime == "host"


@pytest.mark.parametrize("device", [0, HOST])
@pytest.mark.parametrize("code", [35, 100])
def test_where_a_gpu_is_required_its_absence_is_an_error(as_gpu: Engine, code: int, device: int | str) -> None:
    testing.set_no_driver(code)
    with pytest.raises(CudaUnavailableError) as caught:
        choose(device, require_gpu=True)
    assert caught.value.code == code
    assert caught.value.hint


def test_trouble_with_a_gpu_that_is_there_is_not_taken_for_its_absence(as_gpu: Engine) -> None:
    testing.fail("cudaGetDeviceCount", 1, 802)
    with pytest.raises(CudaError, match=r"cudaErrorSystemNotReady \(802\).*nvidia-fabricmanager"):
        choose()


def test_nothing_is_loaded_and_no_call_made_before_somebody_chooses() -> None:
    script = (
        "import sys, pyxfer, pyxfer.native\n"
        "assert not [name for name in sys.modules if name in ('pyxfer.native._cuda', 'pyxfer.native._host')]\n"
        "pyxfer.native.load('host')\n"
        "assert sys.modules['pyxfer.native._host'].testing.calls() == {}\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
