"""Launchers on stand-ins of ssh and srun: what a host's misbehaviour becomes, and what they are called with."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fleet.stand_ins import StandIns, make_stand_ins
from fleet_samples import make_host

from pyxfer._document import codec
from pyxfer._fleet import launch, ray
from pyxfer._fleet.collect import Arrival
from pyxfer._fleet.launch import HostJob, Launcher, check_hosts
from pyxfer.errors import UsageError

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
