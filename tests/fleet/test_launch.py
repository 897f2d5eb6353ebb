"""The host job on simulated devices and in `pyxfer fleet host`, and its launchers on stand-ins of ssh and srun."""

from __future__ import annotations

import os
import resource
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import COMMAND, TIMEOUT_S, environment, pyxfer
from fleet.stand_ins import StandIns, make_stand_ins
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
from pyxfer._fleet import launch, ray
from pyxfer._fleet.cells import cells_of_links, cells_of_run
from pyxfer._fleet.collect import Arrival
from pyxfer._fleet.job import Job, find_devices, labels_of, read_facts
from pyxfer._fleet.launch import HostJob, Launcher, check_hosts
from pyxfer.errors import CudaError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

JOB = HostJob(budget_s=5.0, labels={"rack": "r'7; $(touch /tmp/never)"})


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "document.json"
    path.write_bytes(codec.encode(make_host("other-name")))
    return path


def stand_in(place: Path, monkeypatch: pytest.MonkeyPatch, hosts: dict[str, dict[str, Any]]) -> StandIns:
    made = make_stand_ins(place / "bin", hosts)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def collect(launcher: Launcher, hosts: Sequence[str] | None = None) -> dict[str, Arrival]:
    wanted = launcher.hosts if hosts is None else hosts
    launcher.start(wanted)
    found: dict[str, Arrival] = {}
    until = time.monotonic() + 60
    while len(found) < len(wanted):
        assert time.monotonic() < until
        for answer in launcher.poll(0.05):
            assert answer.host not in found
            found[answer.host] = answer.arrival(launcher.name)
    launcher.stop()
    return found


@pytest.mark.parametrize(
    ("script", "state", "reason"),
    [
        ("cat {document}", "measured", None),
        ("cat {document}; exit 4", "measured", None),
        ("echo rubbish", "unreadable", "not JSON"),
        ("echo Welcome to rack 7; cat {document}", "unreadable", "'Welcome to rack 7'"),
        ("head -c 700 {document}", "unreadable", "cut short"),
        ("exit 0", "failed", "wrote nothing"),
        ("echo 'sh: pyxfer: not found' >&2; exit 127", "failed", "--pyxfer"),
        ("echo 'pyxfer: No usable GPU' >&2; exit 3", "no GPU", "No usable GPU"),
        ("echo 'ssh: connect to host h port 22: No route to host' >&2; exit 255", "lost", "No route to host"),
        ("kill -9 $$", "failed", "exit code -9"),
        ("exit 137", "failed", "the job was killed"),
        ("exit 255", "failed", "the job and its session were killed"),
        ("echo 'Warning: Permanently added h to the list of known hosts.' >&2; exit 255", "failed", "session"),
        ("cat /dev/zero", "failed", "more than 1 MiB"),
        ("while :; do echo noise >&2; done", "late", "no answer within"),
        ("sleep 60", "late", "no answer within"),
        ("trap '' TERM; while :; do sleep 1; done", "late", "no answer within"),
        ("cat {document}; sleep 60", "measured", None),
        ("sleep 60 & cat {document}", "measured", None),
    ],
)
def test_what_a_host_does_becomes_its_row(
    script: str, state: str, reason: str | None, document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, {"node-1": {"script": script.format(document=document)}})
    monkeypatch.setattr(launch, "START_S", -4.5 if state == "late" else -2.0)
    monkeypatch.setattr(launch, "GRACE_S", 0.5)
    monkeypatch.setattr(launch, "MAX_HOST_BYTES", 1 << 20)
    found = collect(launch.ssh_launcher(JOB, ["node-1"], 4))["node-1"]
    assert found.state == state
    assert (found.report is not None) == (state == "measured")
    assert reason is None or reason in (found.reason or "")


def test_ssh_gets_a_list_and_its_remote_shell_one_word_for_each_argument(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stand_in(tmp_path, monkeypatch, {"root@node-1": {}, "node-2": {"script": f"cat {document}"}})
    (tmp_path / "bin/pyxfer").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/words\ncat {document}\n')
    assert {row.state for row in collect(launch.ssh_launcher(JOB, ["root@node-1", "node-2"], 1)).values()} == {
        "measured"
    }
    words = (tmp_path / "words").read_text(encoding="utf-8").splitlines()
    assert words == ["fleet", "host", "--budget=5s", "--export-json=-", f"--label=rack={JOB.labels['rack']}"]
    call = made.calls()[0]
    assert "BatchMode=yes" in call
    assert call[call.index("--") + 1] == "root@node-1"


@pytest.mark.parametrize("job", ["exec sleep 600", "trap '' TERM; while :; do sleep 0.1; done", "sleep 600 & wait"])
def test_a_job_over_ssh_ends_with_its_stdin(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand_in(tmp_path, monkeypatch, {"node-1": {"script": ""}})
    (tmp_path / "job").write_text(f"echo begun\n{job}\n")
    launcher = launch.ssh_launcher(HostJob(("sh", str(tmp_path / "job"))), ["node-1"], 1)
    collect(launcher)
    remote = ["sh", "-c", made.calls()[0][-1]]  # as sshd does it
    with subprocess.Popen(remote, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        # At the end of the pipe no process of the job is left that could write to it.
        output, _ = process.communicate(timeout=60)
    assert output == ""
    assert process.returncode in (128 + signal.SIGTERM, 128 + signal.SIGKILL)


def test_few_descriptors_let_hosts_wait(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {f"node-{number}": {"script": f"cat {document}"} for number in range(40)}
    stand_in(tmp_path, monkeypatch, hosts)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(launch, "_OWN_FILES", open_files + 10)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 20, usual[1]))
    try:
        rows = collect(launch.ssh_launcher(JOB, list(hosts), 40))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert {row.state for row in rows.values()} == {"measured"}


def test_hosts_are_named_once() -> None:
    assert check_hosts(["a", " a", "b.c", "u@d", "[fe80::1%eth0]"], plain=True) == ["a", "b.c", "u@d", "[fe80::1%eth0]"]


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=touch x", "a;b", "a b", "$(a)", "`a`", "a|b", "a\nb", "a'b", "../a", "\x1b[31ma", "[red]"]
)
def test_a_name_that_is_not_that_of_a_host_is_refused(host: str) -> None:
    with pytest.raises(UsageError):
        check_hosts([host, "node-1"], plain=True)


def test_no_more_hosts_than_allowed_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {f"node-{number}": {"script": "sleep 0.1"} for number in range(7)}
    stand_in(tmp_path, monkeypatch, hosts)
    launcher = launch.ssh_launcher(JOB, list(hosts), 3)
    launcher.start(launcher.hosts)
    most, answered = 0, 0
    while answered < len(hosts):
        answered += len(launcher.poll(0.02))
        most = max(most, launcher.running)
    assert most <= 3


def test_srun_runs_one_step_on_each_host_of_the_allocation(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = "echo 'srun: error: Unable to create step for job 7: Requested nodes are busy' >&2; exit 1"
    gone = "echo 'srun: error: Node failure on node-3' >&2; exit 1"
    hosts = {
        "node-1": {"script": f"cat {document}"},
        "node-2": {"script": busy},
        "node-3": {"script": gone},
    }
    made = stand_in(tmp_path, monkeypatch, hosts)
    monkeypatch.setattr(launch, "START_S", -2.0)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node-1,node-2,node-3")
    rows = collect(launch.srun_launcher(JOB, [], 8))
    assert {host: row.state for host, row in rows.items()} == {"node-1": "measured", "node-2": "busy", "node-3": "lost"}
    words = made.calls()[0]
    assert words[words.index("--") + 1 :][:6] == ["timeout", "--kill-after=2", "3", "pyxfer", "fleet", "host"]
    assert words[-1] == f"--label=rack={JOB.labels['rack']}"


def test_what_ray_has_said_at_last_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "[2026-11-23 12:00:00,123 W 7 7] gcs_rpc_client.h:155: Failed to connect to GCS at address 10.0.0.1:6379"
    monkeypatch.setattr(ray, "python_command", lambda _: ["sh", "-c", f"echo one >&2; echo '{said}' >&2"])
    with pytest.raises(UsageError, match=r"the process ended: Failed to connect to GCS at address 10\.0\.0\.1:6379\)"):
        ray.RayLauncher(JOB, []).join()


@pytest.mark.parametrize("start", [launch.ssh_launcher, launch.srun_launcher])
def test_a_launcher_that_is_not_installed_is_refused(
    start: Callable[..., launch.Processes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"no s(sh|run) on the PATH"):
        start(JOB, ["node-1"], 1)


def test_a_launcher_that_cannot_be_started_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    broken = tmp_path / "ssh"
    broken.write_text("#!/no/such/shell\n")
    broken.chmod(0o755)
    row = collect(launch.ssh_launcher(JOB, ["node-1"], 1))["node-1"]
    assert row.state == "failed"
    assert "ssh did not start" in (row.reason or "")


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
FLEET_HOST = ("fleet", "host", "--device", "host", "--export-json")


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
        [*COMMAND, *FLEET_HOST, str(file), "--budget", "60s"],
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
    ended = pyxfer(*FLEET_HOST, str(file), "--budget", "6s", "--save", "--store", path, PYXFER_HOSTRT=STALL)
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
