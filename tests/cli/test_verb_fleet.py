"""`pyxfer fleet judge`, `show` and `history`, and `pyxfer show` of a fleet and a host."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fleet_samples import later, make_fleet, make_host, make_hosts
from in_process import Command

from pyxfer._document.fleets import Fleet


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Twenty hosts, of which one is slow and was measured again with two controls."""
    for report in make_hosts(20, {7: 0.08}):
        report.save(folder(tmp_path / "hosts") / f"{report.host}.json")
        if report.host in ("n7", "n1", "n2"):
            later(report).save(folder(tmp_path / "confirmations") / f"{report.host}.json")
    return tmp_path


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = str(tmp_path / "fleet.json")
    make_fleet().save(path)
    return path


def folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def test_a_confirmed_host_ends_with_one(command: Command, documents: Path) -> None:
    ended = command("fleet", "judge", str(documents))
    assert ended.returncode == 1
    assert ended.stdout.startswith("1 of 20 hosts is slow: n7 ")


def test_without_confirmations_a_host_is_suspect(command: Command, documents: Path) -> None:
    (documents / "confirmations").rename(documents / "elsewhere")
    ended = command("fleet", "judge", str(documents / "hosts"))
    assert ended.returncode == 0
    assert "may be slow: n7 " in ended.stdout


def test_documents_without_a_figure_end_with_four(command: Command, tmp_path: Path) -> None:
    (tmp_path / "n1.json").write_text("rubbish")
    assert command("fleet", "judge", str(tmp_path)).returncode == 4
    assert command("fleet", "judge", str(folder(tmp_path / "empty"))).returncode == 4


def test_hosts_without_a_gpu_end_with_three(command: Command, tmp_path: Path) -> None:
    make_host("n1", runtime="host", runtime_reason="no driver").save(tmp_path / "n1.json")
    ended = command("fleet", "judge", str(tmp_path))
    assert ended.returncode == 3
    assert "no driver" in ended.stdout


def test_verdicts_go_to_files(command: Command, documents: Path, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    names = {form: tmp_path / f"out.{form}" for form in ("json", "prometheus", "drain")}
    options = [word for form, path in names.items() for word in (f"--export-{form}", str(path))]
    assert command("fleet", "judge", str(documents), *options).returncode == 1
    assert [host.host for host in Fleet.load(names["json"]).with_verdict("slow")] == ["n7"]
    assert 'pyxfer_fleet_host_slow{host="n7"} 1.0' in names["prometheus"].read_text()
    assert names["drain"].read_text().startswith("n7 pyxfer: ")


def test_a_slow_host_whose_name_no_scheduler_takes_is_said(command: Command, tmp_path: Path) -> None:
    fleet = make_fleet()
    hosts = tuple(msgspec.structs.replace(host, host=f"{host.host} x") for host in fleet.hosts)
    msgspec.structs.replace(fleet, hosts=hosts).save(tmp_path / "fleet.json")
    ended = command("fleet", "show", str(tmp_path / "fleet.json"), "--export-drain", "-")
    assert ended.stdout == ""
    assert "cannot be drained" in ended.stderr


def test_saved_verdicts_are_shown_by_both_verbs(command: Command, saved: str) -> None:
    ended = command("fleet", "show", saved)
    assert ended.returncode == 0
    assert ended.stdout == command("show", saved).stdout
    assert ended.stdout.startswith("2 of 41 hosts are slow: n3 ")


@pytest.mark.parametrize(("line", "code", "unknown"), [("npd", 1, 2), ("nagios", 2, 3)])
def test_one_line_has_its_own_exit_code_also_for_an_unknown_host_and_unreadable_verdicts(
    command: Command, saved: str, tmp_path: Path, line: str, code: int, unknown: int
) -> None:
    (tmp_path / "half.json").write_bytes(Path(saved).read_bytes()[:900])
    unreadable = [(str(tmp_path / name), "n3", unknown) for name in ("half.json", "none.json")]
    for file, host, expected in ((saved, "n3", code), (saved, "n1000", unknown), *unreadable):
        ended = command("fleet", "show", file, "--line", line, "--host", host)
        assert ended.returncode == expected
        assert len(ended.stdout.splitlines()) == 1
        assert ended.stdout.startswith("PYXFER UNKNOWN - ") == (line == "nagios" and expected == unknown)
