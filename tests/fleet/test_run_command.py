"""`pyxfer fleet run`: hosts are measured, judged, measured again, kept as files, and read from the store."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from baseline.store.making import database
from command_line import COMMAND, TIMEOUT_S, environment, in_terminal, pyxfer, shell
from fleet.stand_ins import StandIns, link_of, make_stand_ins
from fleet_samples import CELLS, later, make_host, make_hosts
from in_process import Command
from marks import slow
from sqlalchemy import text

from pyxfer._baseline.store import open_store
from pyxfer._cli.fleet_run import _chosen_transport
from pyxfer._document import codec
from pyxfer._document.fleets import Fleet, HostReport
from pyxfer._fleet.collect import Arrival, file_name, read_reports, row_of
from pyxfer._fleet.judge import judge
from pyxfer._fleet.run import Kept
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


def test_documents_of_any_two_hosts_are_two_files(tmp_path: Path) -> None:
    kept = Kept(tmp_path, pytest.fail)
    hosts = [
        "a" * 300 + "1",
        "a" * 300 + "2",
        "a",
        "A",
        "a/b",
        "a%2Fb",
        "a b",
        "..",
        "n" * 180,
        "n" * 180 + "+",
        "\u202e",
    ]
    for host in hosts:
        kept.put(f"hosts/{file_name(host)}.json", codec.encode(make_host(host)))
    assert len(list((tmp_path / "hosts").iterdir())) == len(hosts)
    rows = read_reports([tmp_path / "hosts"])
    assert {row.host for row in rows if row.named} == {*hosts}


@pytest.mark.parametrize("number", [signal.SIGINT, slow(signal.SIGTERM)])
def test_ctrl_c_and_sigterm_judge_what_has_arrived_and_keep_it(number: signal.Signals, tmp_path: Path) -> None:
    made = prepared(tmp_path, hosts=6, hung="exec sleep 60")
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
    assert [host.host for host in Fleet.load(tmp_path / "out/fleet.json").with_verdict("suspect")] == ["node-4"]
    assert len(made.calls()) == 5
    assert "5/5 hosts, 0 running, 0 late" in text


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
        (("--since", "soon", "--store", "STORE", "--output-folder", "OUT"), "is not a time"),
        (("--since", "2h", "--store", "NOWHERE", "--output-folder", "OUT"), "does not exist"),
        (("--hosts", "a", "--output-folder", "/dev/null/x"), "cannot be made"),
        (("--hosts", "a", "--output-folder", ""), "--output-folder is empty"),
        (("--folder", ".", "--since", "2h", "--store", "STORE"), "leave out --since"),
        (("--folder", ".", "--device", "0"), "leave out --device"),
        (("--since", "2h", "--store", "STORE", "--label", "rack=r1"), "leave out --label"),
        (("--folder", ".", "--budget", "25s"), "leave out --budget"),
        (("--since", "2h", "--store", "STORE", "--pyxfer", "uvx pyxfer"), "leave out --pyxfer"),
        (("--hosts", "a", "--via", "ssh", "--folder", "."), "leave out --folder"),
        (("--hosts", "a", "--via", "ssh", "--since", "2h"), "leave out --since"),
    ],
)
def test_invalid_options_are_refused_and_leave_no_folder(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    places = {"STORE": url, "NOWHERE": str(tmp_path / "nowhere.db"), "OUT": str(tmp_path / "out")}
    ended = command("fleet", "run", *(places.get(word, word) for word in arguments))
    assert ended.returncode == 2
    assert words in ended.stderr
    assert not list((tmp_path / "here").iterdir())
    assert not (tmp_path / "out").exists()


def test_hosts_of_a_folder_that_were_measured_again_are_slow_and_others_late(command: Command, tmp_path: Path) -> None:
    for place in ("hosts", "confirmations"):
        (tmp_path / "shared" / place).mkdir(parents=True)
        for made in make_hosts(12, {4: 0.1}, seed=len(place)):
            report = made if place == "hosts" else later(made)
            report.save(tmp_path / "shared" / place / f"{report.host}.json")
    hosts = ("--hosts", "n1,n77", "--output-folder", str(tmp_path / "out"))
    ended = command("fleet", "run", "--folder", str(tmp_path / "shared"), *hosts)
    assert ended.returncode == 1, ended.stderr
    judged = Fleet.load(tmp_path / "out/fleet.json")
    assert [host.host for host in judged.with_verdict("slow")] == ["n4"]
    assert judged.host("n77").state == "late"


def test_defaults_of_a_file_that_documents_do_not_need_are_not_refused(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "xdg/pyxfer/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('budget = "30s"\ndevice = "0"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (made,) = make_hosts(1, {}, seed=1)
    (tmp_path / "documents").mkdir()
    made.save(tmp_path / "documents" / f"{made.host}.json")
    arguments = ("--folder", str(tmp_path / "documents"), "--output-folder", str(tmp_path / "out"))
    ended = command("fleet", "run", *arguments)
    assert (tmp_path / "out/fleet.json").exists(), ended.stderr


@pytest.mark.parametrize(
    ("variables", "hosts", "folder", "transport"),
    [
        ({"SLURM_JOB_ID": "7"}, ["a"], None, "srun"),
        ({}, ["a"], None, "ssh"),
        ({"SLURM_JOB_ID": "7"}, [], "documents", "files"),
    ],
)
def test_how_hosts_are_reached_is_found(
    variables: Mapping[str, str], hosts: list[str], folder: str | None, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "RAY_ADDRESS", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setitem(os.environ, name, value)
    assert _chosen_transport(hosts, folder) == transport
    if not variables:
        with pytest.raises(UsageError, match="No hosts are named"):
            _chosen_transport([], None)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_real_job_finds_the_host_the_cell_and_what_is_special(tmp_path: Path) -> None:
    hosts = {f"node-{number}": {"env": {**link_of(2), "PYXFER_LABELS": "rack=r1"}} for number in range(3)}
    hosts["node-1"] = {"env": {"PYXFER_HOSTRT": "link=1e9:1e-6:2e9:1e-6", "PYXFER_LABELS": "rack=r2"}}
    made = make_stand_ins(tmp_path / "bin", hosts)
    out = tmp_path / "out"
    arguments = ("--device", "host", "--output-folder", str(out), "--at-once", "2", "--budget", "25s", "--confirm")
    ended = subprocess.run(
        [*COMMAND, "fleet", "run", "--via", "ssh", "--hosts", names(made), *arguments],
        env=environment(**made.environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert ended.returncode == 1, ended.stderr
    assert Fleet.load(out / "fleet.json").host("node-1").verdict == "slow"
    assert HostReport.load(out / "hosts/node-1.json").labels == {"rack": "r2"}
    judged = judge(of_modelled_copies(out / "hosts"), confirmations=of_modelled_copies(out / "confirmations"))
    assert {host.host: host.verdict for host in judged.hosts} == {"node-0": "fine", "node-1": "slow", "node-2": "fine"}
    assert [loss.cell.text for host in judged.hosts for loss in host.losses] == ["h2d:gpu0:pinned:16MiB"]
    special = {(found.what, found.value): (found.slow, found.others) for found in judged.contrasts}
    assert special["rack", "r2"] == (1, 0)


def of_modelled_copies(folder: Path) -> list[Arrival]:
    """Only with copies of page-locked memory: others depend on what else this machine does."""
    return [arrival_of_pinned_cells(path) for path in sorted(folder.glob("*.json"))]


def arrival_of_pinned_cells(path: Path) -> Arrival:
    report = HostReport.load(path)
    cells = tuple(each for each in report.cells if each.cell.is_alone and each.cell.memory == "pinned")
    return replace(row_of(msgspec.structs.replace(report, cells=cells), path.stem, "file"), named=True)


LINK = "link=2e9:1e-6:1e9:1e-6"
JOB = ("fleet", "host", "--device", "host", "--name", "node-7")
REFUSE = "CREATE TRIGGER refuse BEFORE INSERT ON pyxfer_host_reports BEGIN SELECT RAISE(ABORT, 'refused'); END"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with twenty hosts, one of which has a loss of 8 %."""
    path = str(tmp_path / "store.db")
    with open_store(path) as store:
        for report in make_hosts(20, {7: 0.08}):
            store.add_host_report(report)
    return path


@pytest.fixture
def refusing(tmp_path: Path) -> str:
    """A store that can be opened and takes no document of a host."""
    path = str(tmp_path / "store.db")
    open_store(path).close()
    with database(path) as connection:
        connection.execute(text(REFUSE))
    return path


def stored(path: str) -> list[HostReport]:
    with open_store(path) as store:
        kept = [kept.id for kept in store.host_reports(0.0)]
        return [found.report for found in store.read_host_reports(kept) if found.report is not None]


@pytest.mark.slow
def test_a_host_stores_the_document_that_it_writes(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    options = ("--budget", "2min", "--label", "rack=r7", "--export-json", "-", "--save", "--store", path)
    ended = pyxfer(*JOB, *options, PYXFER_HOSTRT=LINK, PYXFER_LABELS="switch=s2")
    assert ended.returncode == 0, ended.stderr
    report = codec.decode(HostReport, ended.stdout.encode())
    assert (report.host, report.labels) == ("node-7", {"switch": "s2", "rack": "r7"})
    assert (report.runtime, report.runtime_reason, report.ended) == ("host", "", "complete")
    figures = {cell.cell.text: cell.value.value for cell in report.cells}
    assert figures["h2d:gpu0:pinned:16MiB"] == pytest.approx(2, rel=0.02)
    assert figures["d2h:gpu0:pinned:16MiB"] == pytest.approx(1, rel=0.02)
    assert stored(path) == [report]
    ended = pyxfer("fleet", "run", "--since", "1h", "--store", path, "--hosts", "node-7,node-8", cwd=tmp_path)
    assert ended.returncode == 4, "there is no other host to compare it with"
    (file,) = tmp_path.glob("fleet-*/fleet.json")
    assert {host.host: host.state for host in Fleet.load(file).hosts} == {"node-7": "measured", "node-8": "late"}


@pytest.mark.slow
def test_a_document_that_the_store_refuses_is_rescued(refusing: str, tmp_path: Path) -> None:
    saving = ("--budget", "6s", "--save", "--store", refusing)
    ended = pyxfer(*JOB, *saving, PYXFER_HOSTRT=LINK, TMPDIR=str(tmp_path))
    assert ended.returncode == 4
    assert "Figures" in ended.stdout
    (named,) = re.findall(r"is in (\S+pyxfer-host-\S+\.json)", ended.stderr)
    assert HostReport.load(named).host == "node-7"


def test_a_store_that_cannot_be_opened_is_refused_before_measuring(command: Command, tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("no store")
    ended = command(*JOB, "--save", "--store", str(tmp_path / "store.db"))
    assert ended.returncode == 2
    assert "not a pyxfer store" in ended.stderr


def test_stored_hosts_are_judged(command: Command, url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = command("fleet", "run", "--via", "store", "--since", "2h", "--store", url, "--output-folder", str(out))
    assert ended.returncode == 0, ended.stderr
    judged = Fleet.load(out / "fleet.json")
    assert [host.host for host in judged.with_verdict("suspect")] == ["n7"]
    assert len(judged.with_verdict("fine")) == 19


def test_no_document_that_is_young_enough_ends_with_four(command: Command, url: str, tmp_path: Path) -> None:
    with database(url) as connection:
        connection.execute(text("UPDATE pyxfer_host_reports SET stored_s = stored_s - 7260"))
    ended = command(
        "fleet", "run", "--since", "2h", "--store", url, "--hosts", "n1", "--output-folder", str(tmp_path / "out")
    )
    assert ended.returncode == 4
    assert [host.state for host in Fleet.load(tmp_path / "out/fleet.json").hosts] == ["late"]
