"""The host job on simulated devices, and `pyxfer fleet host`: its document, its labels, and how it ends."""

from __future__ import annotations

import signal
import statistics
import subprocess
from pathlib import Path

import msgspec
import pytest
from command_line import COMMAND, TIMEOUT_S, environment, pyxfer
from fleet_samples import make_host
from in_process import Command
from link_samples import make_links
from links.conftest import shorten_trials
from samples import make_device, make_run

from pyxfer._baseline.store import open_store
from pyxfer._doctor import session
from pyxfer._document import codec
from pyxfer._document.fleets import HostReport
from pyxfer._document.links import LatencyTrial
from pyxfer._document.machines import Fact
from pyxfer._fleet import job as jobs
from pyxfer._fleet.cells import cells_of_links, cells_of_run
from pyxfer._fleet.job import Job, find_devices, labels_of, read_facts
from pyxfer.errors import CudaError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

GB = 1e9


@pytest.fixture
def _two_devices(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short trials on two devices, of which the second has half the rate to the host."""
    monkeypatch.setattr(jobs, "_HOST_LINKS_BYTES", "256KiB")
    shorten_trials(monkeypatch)
    testing.set_device_count(2)
    testing.model_link_of(0, 2 * GB, 1e-6, 2 * GB, 1e-6)
    testing.model_link_of(1, GB, 1e-6, 2 * GB, 1e-6)


def _run(budget_s: float = 4.0) -> HostReport:
    return Job(*find_devices("host"), {"rack": "r7"}, budget_s).run()


@pytest.mark.slow
@pytest.mark.usefixtures("_two_devices")
def test_every_device_alone_and_all_together_have_cells_and_a_slow_link_shows_in_its_own() -> None:
    report = _run()
    assert (report.ended, report.failure, report.labels) == ("complete", None, {"rack": "r7"})
    names = [cell.cell.text for cell in report.cells]
    sides, memories = ("h2d", "d2h"), ("pageable", "pinned")
    alone = [f"{side}:gpu{n}:{memory}:16MiB" for n in (0, 1) for side in sides for memory in memories]
    there = ("host-gpu0", "host-gpu1", "host-gpu0+gpu1")
    back = ("gpu0-host", "gpu1-host", "gpu0+gpu1-host")
    assert names == [
        *alone,
        *(f"links.host.{case}:256KiB" for n in (0, 1) for case in (f"h2d.ce:host-gpu{n}", f"d2h.ce:gpu{n}-host")),
        *(f"links.together.h2d.ce:{ends}:256KiB" for ends in there),
        *(f"links.together.d2h.ce:{ends}:256KiB" for ends in back),
        *(f"links.pairs.ring.ce:{ends}:256KiB" for ends in ("gpu0-gpu1", "gpu1-gpu0")),
        *(f"links.latency.idle:host-gpu{n}:2MiB" for n in (0, 1)),
    ]
    values = {cell.cell.text: cell.value.value for cell in report.cells}
    assert values["h2d:gpu0:pinned:16MiB"] == pytest.approx(2, rel=0.01)
    assert values["h2d:gpu1:pinned:16MiB"] == pytest.approx(1, rel=0.01)
    assert values["d2h:gpu1:pinned:16MiB"] == pytest.approx(2, rel=0.01)
    for cell in report.cells:
        if cell.value.value is not None:
            assert cell.value.value == statistics.median(cell.samples)
    assert codec.decode(HostReport, codec.encode(report)) == report


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_a_latency_that_varies_widely_is_still_a_valid_figure(far: float) -> None:
    p50 = [30.0] * 9 + [30.0 * far] * 7
    trials = tuple(LatencyTrial(number, 300, ns, None, None) for number, ns in enumerate(p50))
    run = make_links(groups=("latency",))
    rows = tuple(msgspec.structs.replace(row, trials=trials) for row in run.latencies)
    cells = tuple(cells_of_links(msgspec.structs.replace(run, latencies=rows[:1])))
    assert cells
    report = make_host("n1", {}, cells=cells)
    assert codec.decode(HostReport, codec.encode(report)) == report


@pytest.mark.slow
@pytest.mark.usefixtures("_two_devices")
def test_a_device_that_fails_is_said_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    real = session.examine_device

    def fail_on_the_first(choice, found, *arguments, **more):  # type: ignore[no-untyped-def]
        if found.index == 0:
            raise CudaError(999, "cudaErrorUnknown", "cudaMalloc", "x.cpp:1", "unknown error", "")
        return real(choice, found, *arguments, **more)

    monkeypatch.setattr(jobs, "examine_device", fail_on_the_first)
    report = _run()
    assert report.ended == "failed"
    assert "GPU 0: cudaMalloc failed" in (report.failure or "")
    assert {cell.cell.gpus for cell in report.cells if cell.cell.memory == "pinned"} == {(1,)}


@pytest.mark.usefixtures("_two_devices")
def test_ctrl_c_leaves_what_was_measured() -> None:
    choice, found = find_devices("host")

    def interrupt_links(progress):  # type: ignore[no-untyped-def]
        if "together" in progress.text:
            raise KeyboardInterrupt

    report = Job(choice, found, {}, 4.0, interrupt_links).run()
    assert report.ended == "interrupted"
    values = {cell.cell.text: cell.value for cell in report.cells}
    assert values["d2h:gpu1:pinned:16MiB"].value is not None
    assert values["links.together.h2d.ce:host-gpu0+gpu1:256KiB"].reason is not None


def test_an_engine_that_is_not_available_leaves_cells_with_reasons() -> None:
    run = make_run()
    row = msgspec.structs.replace(run.measurements[0], verified=Fact(False))
    cell = next(iter(cells_of_run(msgspec.structs.replace(run, measurements=(row,)))))
    assert (cell.value.value, cell.samples, cell.value.reason) == (None, (), "the contents were wrong")


def test_of_many_devices_the_first_of_each_node_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "device_node", lambda device: Fact(device.index // 3))
    many = [make_device(index=number) for number in range(6)]
    assert [device.index for device in jobs._examined(many)] == [0, 3]
    assert jobs._examined(many[:2]) == many[:2]


def test_labels_come_from_the_environment_and_the_command_which_wins() -> None:
    found = labels_of(["rack=r8", "note=a=b; $(x)"], {"PYXFER_LABELS": "rack=r7, switch=s2,"})
    assert found == {"rack": "r8", "switch": "s2", "note": "a=b; $(x)"}


@pytest.mark.parametrize("label", ["rack", "=r7", "rack=", "a b=c", "1=2", f"rack={'r' * 300}", "switch=s3"])
def test_a_label_of_another_form_or_a_second_one_is_refused(label: str) -> None:
    with pytest.raises(UsageError):
        labels_of(["switch=s2", label], {})


def test_facts_of_several_gpus_have_each_distinct_value_once(tmp_path: Path) -> None:
    run = make_run()
    slower = msgspec.structs.replace(run.link, max_payload_bytes=Fact(128))
    facts = read_facts([run, run, msgspec.structs.replace(run, link=slower)], tmp_path, {})
    assert facts["payload, bytes"] == "128 and 256"
    assert facts["link state"].startswith("PCIe ")
    assert facts["driver"] == run.environment.driver.value


def test_kernel_parameters_are_facts_one_by_one_without_those_of_one_host(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    line = "BOOT_IMAGE=/vmlinuz root=UUID=1-2 ro quiet iommu=pt pcie_aspm=off seed=http://x -- --token=7"
    (tmp_path / "proc/cmdline").write_text(line, encoding="utf-8")
    bios = tmp_path / "sys/class/dmi/id"
    bios.mkdir(parents=True)
    (bios / "bios_version").write_text("2.1\n", encoding="utf-8")
    facts = read_facts([], tmp_path, {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps"})
    assert facts == {
        "BIOS": "2.1",
        "MPS": "on",
        "kernel parameter quiet": "given",
        "kernel parameter iommu": "pt",
        "kernel parameter pcie_aspm": "off",
    }


STALL = "stall=cudaMemcpyAsync:9:1000"
JOB = ("fleet", "host", "--device", "host", "--export-json")


@pytest.mark.slow
@pytest.mark.usefixtures("engine", "no_gpu")
def test_a_host_without_a_gpu_says_so_in_its_document(command: Command, tmp_path: Path) -> None:
    testing.model_link(2e9, 1e-6, 1e9, 1e-6)
    file = tmp_path / "host.json"
    ended = command("fleet", "host", "--budget", "2min", "--export-json", str(file))
    assert ended.returncode == 0, ended.stderr
    assert HostReport.load(file).runtime_reason.startswith("No usable GPU")
    assert "Figures" in ended.stdout


def test_sigterm_leaves_a_document(tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    with subprocess.Popen(
        [*COMMAND, *JOB, str(file), "--budget", "60s"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=environment(PYXFER_HOSTRT=STALL),
    ) as process:
        assert process.stderr is not None
        while "preparing" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 130
    assert HostReport.load(file).ended == "interrupted"


@pytest.mark.slow
def test_a_device_that_hangs_ends_the_job_in_time_with_a_document(tmp_path: Path) -> None:
    file, path = tmp_path / "host.json", str(tmp_path / "store.db")
    ended = pyxfer(*JOB, str(file), "--budget", "6s", "--save", "--store", path, PYXFER_HOSTRT=STALL)
    assert ended.returncode == 4
    report = HostReport.load(file)
    with open_store(path) as store:
        assert [kept.host for kept in store.host_reports(0.0)] == [report.host]
    assert report.ended in ("interrupted", "failed")
    assert "the budget of 6 s" in (report.failure or "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", "1s"), "at least 5 s"),
        (("--label", "rack"), "rack=r7"),
        (("--name", ""), "--name"),
        (("--device", "host", "--require-gpu"), "leave out one"),
        ((), "PYXFER_LABELS"),
    ],
)
def test_invalid_options_are_refused(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.setenv("PYXFER_LABELS", "" if arguments else "rack")
    ended = command("fleet", "host", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
