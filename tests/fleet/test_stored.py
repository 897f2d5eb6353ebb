"""`pyxfer fleet host --save` and `pyxfer fleet run --via store`: hosts that write their documents into the store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from baseline.store.making import database
from command_line import pyxfer, shell
from fleet_samples import make_hosts
from in_process import Command
from sqlalchemy import text

from pyxfer._baseline.store import open_store
from pyxfer._document import codec
from pyxfer._document.fleets import Fleet, HostReport

LINK = "link=2e9:1e-6:1e9:1e-6"
JOB = ("fleet", "host", "--devices", "host", "--name", "node-7")
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
    ended = pyxfer(*JOB, "--budget", "2min", "--export-json", "-", "--save", "--store", path, PYXFER_HOSTRT=LINK)
    assert ended.returncode == 0, ended.stderr
    assert stored(path) == [codec.decode(HostReport, ended.stdout.encode())]
    ended = pyxfer("fleet", "run", "--since", "1h", "--store", path, "--hosts", "node-7,node-8", cwd=tmp_path)
    assert ended.returncode == 4, "there is no other host to compare it with"
    (file,) = tmp_path.glob("fleet-*/fleet.json")
    assert {host.host: host.state for host in Fleet.load(file).hosts} == {"node-7": "measured", "node-8": "late"}


@pytest.mark.slow
def test_a_document_that_the_store_refuses_is_in_the_file(refusing: str, tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    ended = pyxfer(
        *JOB, "--budget", "6s", "--export-json", str(file), "--save", "--store", refusing, PYXFER_HOSTRT=LINK
    )
    assert ended.returncode == 4
    assert repr(str(file)) in ended.stderr
    assert HostReport.load(file).host == "node-7"


@pytest.mark.slow
def test_a_document_that_the_store_refuses_is_rescued(refusing: str, tmp_path: Path) -> None:
    saving = ("--budget", "6s", "--save", "--store", refusing)
    ended = pyxfer(*JOB, *saving, PYXFER_HOSTRT=LINK, TMPDIR=str(tmp_path))
    assert ended.returncode == 4
    assert "Figures" in ended.stdout
    (named,) = re.findall(r"is in (\S+pyxfer-host-\S+\.json)", ended.stderr)
    assert HostReport.load(named).host == "node-7"


@pytest.mark.slow
def test_a_document_whose_reader_has_ended_is_stored(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    shell(f"pyxfer {' '.join(JOB)} --budget 6s --export-json - --save --store {path} | true", PYXFER_HOSTRT=LINK)
    assert [report.host for report in stored(path)] == ["node-7"]


@pytest.mark.slow
def test_a_host_whose_driver_hangs_stores_its_document(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    stall = "stall=cudaMalloc:1:1000"
    ended = pyxfer(*JOB, "--budget", "6s", "--save", "--store", path, PYXFER_HOSTRT=stall)
    assert ended.returncode == 4
    (report,) = stored(path)
    assert "the budget of 6 s" in (report.failure or "")


def test_a_store_that_cannot_be_opened_is_refused_before_measuring(command: Command, tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("no store")
    ended = command(*JOB, "--save", "--store", str(tmp_path / "store.db"))
    assert ended.returncode == 2
    assert "not a pyxfer store" in ended.stderr


def test_stored_hosts_are_judged(command: Command, url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = command("fleet", "run", "--via", "store", "--store", url, "--since", "2h", "--output-folder", str(out))
    assert ended.returncode == 0, ended.stderr
    judged = Fleet.load(out / "fleet.json")
    assert [host.host for host in judged.with_verdict("suspect")] == ["n7"]
    assert len(judged.with_verdict("fine")) == 19


def test_verdicts_on_stored_hosts_are_kept_in_the_same_store(command: Command, url: str, tmp_path: Path) -> None:
    saving = ("--store", url, "--save", "--output-folder", str(tmp_path / "out"))
    assert command("fleet", "run", "--since", "2h", *saving).returncode == 0
    with open_store(url) as store:
        assert [kept.hosts for kept in store.fleets()] == [20]


def test_no_document_that_is_young_enough_ends_with_four(command: Command, url: str, tmp_path: Path) -> None:
    with database(url) as connection:
        connection.execute(text("UPDATE pyxfer_host_reports SET stored_s = stored_s - 7260"))
    ended = command(
        "fleet", "run", "--since", "2h", "--store", url, "--hosts", "n1", "--output-folder", str(tmp_path / "out")
    )
    assert ended.returncode == 4
    assert [host.state for host in Fleet.load(tmp_path / "out/fleet.json").hosts] == ["late"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--via", "store"), "--since"),
        (("--since", "soon", "--store", "STORE"), "is not a time"),
        (("--since", "2h", "--store", "NOWHERE"), "does not exist"),
    ],
)
def test_invalid_options_are_refused(
    command: Command, url: str, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    places = {"STORE": url, "NOWHERE": str(tmp_path / "nowhere.db")}
    given = [places.get(word, word) for word in arguments]
    ended = command("fleet", "run", *given, "--output-folder", str(tmp_path / "out"))
    assert ended.returncode == 2
    assert words in ended.stderr
