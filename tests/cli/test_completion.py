"""The values that a shell offers."""

from __future__ import annotations

from pathlib import Path

import pytest
from baseline.store.making import make_baseline
from command_line import pyxfer
from typer.testing import CliRunner

from pyxfer._baseline.store import open_store
from pyxfer._cli import completion
from pyxfer._cli.main import app
from pyxfer.errors import CudaUnavailableError


def offered(line: str) -> list[str]:
    """The values for the last word of a line, as bash gets them."""
    words = line.split(" ")
    environment = {"_PYXFER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    result = CliRunner().invoke(app, [], env=environment, prog_name="pyxfer")
    assert result.exit_code == 0, result.output
    return result.stdout.split()


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("pyxfer cei", ["ceiling"]),
        ("pyxfer ceiling --memories p", ["pageable", "pinned"]),
        ("pyxfer ceiling --modes auto,s", ["auto,streams:2", "auto,streams:4", "auto,staged"]),
        ("pyxfer ceiling --directions h2d,", ["h2d,d2h", "h2d,both"]),
        ("pyxfer frameworks t", ["torch", "tensorflow"]),
        (
            "pyxfer frameworks --routes jax.ingest,tf.ingest-",
            ["jax.ingest,tf.ingest-rawop", "jax.ingest,tf.ingest-dlpack"],
        ),
        ("pyxfer frameworks --routes tf", ["tf.*"]),
        ("pyxfer frameworks --workload i", ["image-batch"]),
        ("pyxfer explain raw.pinned-as", ["raw.pinned-async"]),
        ("pyxfer explain torch.to --direction ", ["h2d", "d2h"]),
        ("pyxfer show run.json --sort m", ["memory", "mode"]),
        ("pyxfer list ", ["routes"]),
    ],
)
def test_values_are_offered(line: str, values: list[str]) -> None:
    found = offered(line)
    assert found[: len(values)] == values
    assert all(value.startswith(line.rpartition(" ")[2]) for value in found)


def test_an_item_of_a_list_is_offered_once() -> None:
    assert offered("pyxfer ceiling --directions h2d,h") == []


def test_names_of_baselines_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYXFER_STORE", str(tmp_path / "store.db"))
    with open_store() as store:
        for name, host in (("monday", "a"), ("monday", "b"), ("two\nlines\x1b[31m", "a")):
            store.add_baseline(make_baseline(name, host=host))
    assert offered("pyxfer baseline show ") == ["monday"]
    assert offered("pyxfer baseline check --name m") == ["monday"]
    assert offered("pyxfer compare base") == ["baseline:monday"]


def test_without_a_store_nothing_is_offered_and_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYXFER_STORE", str(tmp_path / "store.db"))
    assert offered("pyxfer baseline show ") == []
    assert list(tmp_path.iterdir()) == []


def test_devices_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    from samples import make_device

    import pyxfer

    monkeypatch.setattr(pyxfer, "devices", lambda: (make_device(),))
    device = make_device()
    assert offered("pyxfer ceiling --device ") == ["0", device.uuid.value, device.pci.value, "host"]
    assert offered("pyxfer doctor --device h") == ["host"]


def test_a_broken_driver_offers_nothing() -> None:
    def fail() -> list[str]:
        raise CudaUnavailableError(999, "cudaErrorUnknown", "cudaGetDeviceCount", "", "", "")

    assert completion.one_of(fail)("") == []


def test_the_installed_command_completes_verbs() -> None:
    result = pyxfer("ceiling", _PYXFER_COMPLETE="complete_bash", COMP_WORDS="pyxfer s", COMP_CWORD="1")
    assert result.stdout.split() == ["schema", "show"]
