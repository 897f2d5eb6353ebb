"""`pyxfer fleet run`: hosts are measured, judged, measured again, and every document is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import COMMAND, TIMEOUT_S, environment, in_terminal, pyxfer, shell
from fleet.stand_ins import StandIns, link_of, make_stand_ins
from fleet_samples import CELLS, later, make_host, make_hosts
from in_process import Command

from pyxfer._cli.fleet_run import _chosen_way
from pyxfer._document import codec
from pyxfer._document.fleets import Fleet, HostReport
from pyxfer.errors import UsageError

PINNED = "h2d:gpu0:pinned:256MiB"
SLOW = 4


def prepared(folder: Path, hosts: int = 12, **others: str) -> StandIns:
    """Hosts that send ready documents; that of node-4 has a loss of 10 % in one cell. `others`: scripts."""
    wanted: dict[str, dict[str, Any]] = {name.replace("_", "-"): {"script": text} for name, text in others.items()}
    for number in range(hosts):
        name = f"node-{number}"
        factor = 1 + 0.001 * (number % 5)
        values: dict[str, float | None] = {cell: value * factor for cell, value in CELLS.items()}
        facts = {"driver": "580.65", "link state": "PCIe 5.0 x16", "link capability": "PCIe 5.0 x16"}
        if number == SLOW:
            values[PINNED] = 0.9 * CELLS[PINNED]
            facts["kernel parameter iommu"] = "strict"
        file, second, seen = folder / f"{name}.json", folder / f"{name}-later", folder / f"{name}-seen"
        report = make_host(name, values, facts=facts)
        file.write_bytes(codec.encode(report))
        second.write_bytes(codec.encode(later(report)))
        script = f"if [ -e {seen} ]; then cat {second}; else touch {seen}; cat {file}; fi"
        wanted.setdefault(name, {"script": script})
    return make_stand_ins(folder / "bin", wanted)


def names(made: StandIns) -> str:
    return ",".join(json.loads(made.environment["STAND_IN_HOSTS"]))


def fleet_run_of(made: StandIns, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    arguments = ("fleet", "run", "--via", "ssh", "--hosts", names(made), "--output-folder", str(out))
    return pyxfer(*arguments, "--budget", "5s", *more, cwd=None, **made.environment)


def test_a_slow_host_is_measured_again_beside_controls_and_ends_with_1(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    ended = fleet_run_of(made, tmp_path / "out")
    assert ended.returncode == 1, ended.stderr
    assert "node-4" in ended.stdout.splitlines()[0]
    judged = Fleet.load(tmp_path / "out/fleet.json")
    assert [host.host for host in judged.with_verdict("slow")] == ["node-4"]
    worst = judged.host("node-4").worst
    assert worst is not None
    assert (worst.cell.text, worst.confirmed) == (PINNED, True)
    again = sorted(path.stem for path in (tmp_path / "out/confirmations").iterdir())
    assert len(again) == 3
    assert "node-4" in again
    sent = {path.name: path.read_bytes() for path in tmp_path.glob("node-*.json")}
    assert {path.name: path.read_bytes() for path in (tmp_path / "out/hosts").iterdir()} == sent
    assert pyxfer("fleet", "judge", str(tmp_path / "out/hosts")).returncode == 1


def test_documents_of_an_earlier_run_are_not_mixed_with_others(tmp_path: Path) -> None:
    made = prepared(tmp_path, hosts=5)
    (tmp_path / "out/hosts").mkdir(parents=True)
    ended = fleet_run_of(made, tmp_path / "out")
    assert ended.returncode == 2
    assert "earlier run" in ended.stderr
    assert not made.calls()


def test_without_confirmation_no_host_is_called_slow(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    ended = fleet_run_of(made, tmp_path / "out", "--no-confirm")
    assert ended.returncode == 0, ended.stderr
    assert [host.host for host in Fleet.load(tmp_path / "out/fleet.json").with_verdict("suspect")] == ["node-4"]
    assert len(made.calls()) == 12


def test_hosts_in_trouble_are_rows_and_the_others_are_judged(tmp_path: Path) -> None:
    gone = "echo 'ssh: Could not resolve hostname' >&2; exit 255"
    made = prepared(tmp_path, gone=gone, mad="echo '<html>'", torn=f"head -c 900 {tmp_path}/node-0.json")
    assert fleet_run_of(made, tmp_path / "out").returncode == 1
    judged = Fleet.load(tmp_path / "out/fleet.json")
    states = {host.host: host.state for host in judged.hosts if host.verdict == "not judged"}
    assert states == {"gone": "lost", "mad": "unreadable", "torn": "unreadable"}
    assert len(judged.with_verdict("fine")) == 11


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_judge_what_has_arrived_and_keep_it(number: signal.Signals, tmp_path: Path) -> None:
    made = prepared(tmp_path, hosts=6, hung="sleep 60")
    out = tmp_path / "out"
    arguments = ["fleet", "run", "--via", "ssh", "--hosts", names(made), "--output-folder", str(out)]
    with subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment(**made.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        until = time.monotonic() + TIMEOUT_S
        while len(list(out.glob("hosts/*.json"))) < 6:
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(number)
        page, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert "node-4" in page
    judged = Fleet.load(out / "fleet.json")
    hung = judged.host("hung")
    assert (hung.state, hung.verdict) == ("late", "not judged")
    assert "interrupted" in (hung.reason or "")


def test_a_disk_without_room_is_said_and_the_verdict_is_printed(tmp_path: Path) -> None:
    made = prepared(tmp_path, hosts=6)
    command = f"ulimit -f 1; pyxfer fleet run --via ssh --hosts {names(made)} --output-folder {tmp_path}/out"
    ended = shell(f"( {command} )", **made.environment)
    assert ended.returncode in (1, 4)
    assert "stays in memory" in ended.stderr
    assert "documents were not written" in ended.stderr
    assert "node-4" in ended.stdout.splitlines()[0]


def test_a_terminal_shows_how_many_hosts_are_done_running_and_late(tmp_path: Path) -> None:
    made = prepared(tmp_path, hosts=5)
    arguments = ("--hosts", names(made), "--output-folder", str(tmp_path / "out"), "--no-confirm")
    code, text = in_terminal("fleet", "run", "--via", "ssh", *arguments, columns=100, **made.environment)
    assert code == 0
    assert "5/5 hosts, 0 running, 0 late" in text


def test_documents_in_a_folder_are_judged_and_missing_hosts_are_late(tmp_path: Path) -> None:
    prepared(tmp_path, hosts=6)
    hosts = ("--hosts", "node-1,node-77")
    ended = pyxfer("fleet", "run", "--folder", str(tmp_path), *hosts, "--output-folder", str(tmp_path / "out"))
    assert ended.returncode == 0, ended.stderr
    judged = Fleet.load(tmp_path / "out/fleet.json")
    assert judged.host("node-77").state == "late"
    assert [host.host for host in judged.with_verdict("suspect")] == ["node-4"]


def test_hosts_come_from_a_file_with_comments(tmp_path: Path) -> None:
    made = prepared(tmp_path, hosts=5)
    (tmp_path / "names").write_text("node-0 # the first\n\n# none\nnode-1\nnode-0\n", encoding="utf-8-sig")
    arguments = ("--hosts-file", str(tmp_path / "names"), "--output-folder", str(tmp_path / "out"))
    pyxfer("fleet", "run", "--via", "ssh", *arguments, cwd=None, **made.environment)
    called = {call[call.index("--") + 1] for call in made.calls()}
    assert called == {"node-0", "node-1"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--hosts", "-oProxyCommand=x"), "is not the name of a host"),
        (("--hosts", "a;touch x"), "is not the name of a host"),
        (("--via", "rsh"), "'rsh' is unknown"),
        (("--via", "files"), "--folder"),
        (("--via", "srun"), "salloc"),
        (("--hosts", "a", "--budget", "1s"), "at least 5 s"),
        (("--hosts", "a", "--pyxfer", " "), "--pyxfer is empty"),
        (("--hosts", "a", "--pyxfer", "it's"), "No closing quotation"),
        (("--hosts-file", "/nowhere/names"), "cannot be read"),
        (("--hosts-file", "/dev/null"), "--hosts-file names no host"),
        (("--hosts", ","), "--hosts names no host"),
        (("--via", "store"), "--since"),
        (("--hosts", "a", "--output-folder", "/dev/null/x"), "cannot be made"),
    ],
)
def test_invalid_options_are_refused_and_leave_no_folder(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ended = command("fleet", "run", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert not list(tmp_path.iterdir())


def test_hosts_in_a_folder_that_were_measured_again_are_slow(command: Command, tmp_path: Path) -> None:
    for place in ("hosts", "confirmations"):
        (tmp_path / "shared" / place).mkdir(parents=True)
        for made in make_hosts(12, {4: 0.1}, seed=len(place)):
            report = made if place == "hosts" else later(made)
            report.save(tmp_path / "shared" / place / f"{report.host}.json")
    ended = command("fleet", "run", "--folder", str(tmp_path / "shared"), "--output-folder", str(tmp_path / "out"))
    assert ended.returncode == 1, ended.stderr
    judged = Fleet.load(tmp_path / "out/fleet.json")
    assert [host.host for host in judged.with_verdict("slow")] == ["n4"]


@pytest.mark.parametrize(
    ("variables", "hosts", "folder", "way"),
    [
        ({"SLURM_JOB_ID": "7"}, ["a"], None, "srun"),
        ({}, ["a"], None, "ssh"),
        ({"SLURM_JOB_ID": "7"}, [], "documents", "files"),
    ],
)
def test_the_way_to_the_hosts_is_found(
    variables: Mapping[str, str], hosts: list[str], folder: str | None, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "RAY_ADDRESS", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setitem(os.environ, name, value)
    assert _chosen_way(hosts, folder) == way
    if not variables:
        with pytest.raises(UsageError, match="No hosts are named"):
            _chosen_way([], None)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("via", "confirm", "verdict"), [("ssh", "--confirm", "slow"), ("srun", "--no-confirm", "suspect")]
)
def test_the_real_job_finds_the_host_the_cell_and_what_is_special(
    via: str, confirm: str, verdict: Any, tmp_path: Path
) -> None:
    hosts = {f"node-{number}": {"env": {**link_of(2), "PYXFER_LABELS": "rack=r1"}} for number in range(3)}
    hosts["node-1"] = {"env": {"PYXFER_HOSTRT": "link=1e9:1e-6:2e9:1e-6", "PYXFER_LABELS": "rack=r2"}}
    made = make_stand_ins(tmp_path / "bin", hosts)
    arguments = (
        "--devices",
        "host",
        "--output-folder",
        str(tmp_path / "out"),
        "--at-once",
        "2",
        "--budget",
        "25s",
        confirm,
    )
    allocation = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": names(made)}
    ended = subprocess.run(
        [*COMMAND, "fleet", "run", "--via", via, "--hosts", names(made), *arguments],
        env=environment(**made.environment, **allocation),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert ended.returncode == (verdict == "slow"), ended.stderr
    judged = Fleet.load(tmp_path / "out/fleet.json")
    assert judged.host("node-1").verdict == verdict
    # Copies of pinned memory take the modelled time. Others depend on what else this machine does.
    lost = [
        (host.host, loss.cell.text)
        for host in judged.hosts
        for loss in host.losses
        if loss.cell.is_alone and loss.cell.memory == "pinned"
    ]
    assert lost == [("node-1", "h2d:gpu0:pinned:16MiB")]
    assert HostReport.load(tmp_path / "out/hosts/node-1.json").labels == {"rack": "r2"}
    if verdict == "slow":  # a busy machine may make another host suspect, which is not confirmed
        special = {(found.what, found.value): (found.slow, found.others) for found in judged.contrasts}
        assert special["rack", "r2"] == (1, 0)
