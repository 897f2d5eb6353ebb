"""Documents of hosts from files: a bad one is a row with its reason."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import msgspec
import pytest
from fleet_samples import make_fleet, make_host, make_hosts
from samples import make_run

from pyxfer._document import codec, fleets
from pyxfer._fleet import collect
from pyxfer._fleet.collect import arrival_of, read_confirmations, read_reports


def write(path: Path, *hosts: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for host in hosts:
        make_host(host).save(path / f"{host}.json")


def test_files_and_folders_are_read_in_order(tmp_path: Path) -> None:
    write(tmp_path / "a", "n2", "n1")
    write(tmp_path / "a" / "inner", "n3")
    make_host("n4").save(tmp_path / "n4.json.gz")
    found = read_reports([tmp_path / "n4.json.gz", tmp_path / "a"])
    assert [row.host for row in found] == ["n4", "n1", "n2", "n3"]
    assert {row.state for row in found} == {"measured"}
    assert found[1].source == str(tmp_path / "a" / "n1.json")


def test_samples_stay_in_the_files(tmp_path: Path) -> None:
    whole = make_host("n1")
    whole.save(tmp_path / "n1.json")
    (row,) = read_reports([tmp_path])
    assert row.report is not None
    assert all(cell.samples == () and cell.value.value for cell in row.report.cells)
    assert msgspec.structs.replace(row.report, cells=whole.cells) == whole


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"\x00\xff rubbish", "not JSON"),
        (codec.encode(make_host())[:2000], "cut short"),
        (codec.encode(make_run()), "is a run"),
        (b"[]", "not a pyxfer host"),
        (codec.encode(make_host()).replace(b'"schema_version": 1', b'"schema_version": 99'), "upgrade pyxfer"),
        (codec.encode(make_host()).replace(b'"ended": "complete"', b'"ended": 7'), "ended"),
        (
            codec.seal(
                codec.encode(make_host("n1", {"h2d:gpu0:pinned:4KiB": 1.0})).replace(b'"value": 1.0', b'"value": -1.0')
            ),
            "cells[0]",
        ),
        (codec.encode(make_host()).replace(b'"580.65"', b'"580.66"'), "digest"),
    ],
)
def test_a_bad_document_is_a_row_with_its_reason(data: bytes, word: str, tmp_path: Path) -> None:
    (tmp_path / "node-9.json").write_bytes(data)
    make_host("n1").save(tmp_path / "n1.json")
    good, bad = read_reports([tmp_path])
    assert good.state == "measured"
    assert (bad.host, bad.state, bad.report) == ("node-9", "unreadable", None)
    assert word in (bad.reason or "")


def test_documents_larger_than_those_of_hosts_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "n1")
    most = 2 * (tmp_path / "n1.json").stat().st_size
    monkeypatch.setattr(collect, "MAX_HOST_BYTES", most)
    monkeypatch.setattr(fleets, "MAX_CELLS", 3)
    (tmp_path / "large.json").write_bytes(bytes(most + 1))
    (tmp_path / "packed.json").write_bytes(gzip.compress(bytes(most + 1)))
    (tmp_path / "fleet.json").write_bytes(bytes(most + 1))
    cells = {f"h2d:gpu0:pinned:{size}MiB": 1.0 for size in (1, 2, 4, 8)}
    make_host("many", cells).save(tmp_path / "many.json.gz")
    rows = {row.host: (row.state, row.reason or "") for row in read_reports([tmp_path])}
    assert {host: state for host, (state, _) in rows.items()} == {
        "n1": "measured",
        **dict.fromkeys(("large", "packed", "many"), "unreadable"),
    }
    assert "larger than" in rows["large"][1]
    assert "larger than" in rows["packed"][1]
    assert "no host has more than 3" in rows["many"][1]


def test_only_regular_files_of_a_folder_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("no document")
    (tmp_path / ".pyxfer-1.tmp").write_text("half")
    write(tmp_path, "n1")
    assert [row.host for row in read_reports([tmp_path])] == ["n1"]


def test_the_verdicts_beside_the_documents_are_no_host(tmp_path: Path) -> None:
    write(tmp_path, "n1")
    make_fleet().save(tmp_path / "fleet.json")
    assert [row.host for row in read_reports([tmp_path])] == ["n1"]
    assert [row.state for row in read_reports([tmp_path / "fleet.json"])] == ["unreadable"]


@pytest.mark.parametrize(("place", "given"), [("hosts", "hosts"), (".", "."), ("hosts", "hosts/n1.json")])
def test_confirmations_are_in_a_folder_of_their_own(place: str, given: str, tmp_path: Path) -> None:
    write(tmp_path / place, "n1", "n2")
    write(tmp_path / "confirmations", "n1", "n2")
    (tmp_path / "confirmations" / "n2.json").write_text("{")
    assert [(row.host, row.state) for row in read_reports([tmp_path / place])] == [
        ("n1", "measured"),
        ("n2", "measured"),
    ]
    found = read_confirmations([tmp_path / given])
    assert [(row.host, row.state) for row in found] == [("n1", "measured"), ("n2", "unreadable")]
    assert found[0].named


def test_states_of_hosts() -> None:
    cells: dict[str, float | None] = {"h2d:gpu0:pinned:256MiB": None}
    assert arrival_of(codec.encode(make_host("n1", ended="interrupted")), None, "f").state == "incomplete"
    assert arrival_of(codec.encode(make_host("n1", cells)), None, "f").state == "failed"
    failed = arrival_of(codec.encode(make_host("n1", ended="failed", failure="the GPU is lost")), None, "f")
    assert (failed.state, failed.reason) == ("failed", "the GPU is lost")
    without = arrival_of(codec.encode(make_host("n1", runtime="host", runtime_reason="no driver")), None, "f")
    assert (without.state, without.reason) == ("no GPU", "no driver")
    on_purpose = arrival_of(codec.encode(make_host("n1", runtime="host", runtime_reason="")), None, "f")
    assert on_purpose.state == "measured"


def test_a_launcher_names_the_host_itself() -> None:
    assert arrival_of(codec.encode(make_host("vm")), "node-1", "ssh").host == "node-1"
    assert arrival_of(b"rubbish", "node-1", "ssh").host == "node-1"


def test_many_files_are_read_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "_MANY", 3)
    monkeypatch.setattr(collect, "_BATCH", 2)
    for report in make_hosts(5):
        report.save(tmp_path / f"{report.host}.json")
    (tmp_path / "n3.json").write_bytes(b"rubbish")
    found = read_reports([tmp_path])
    assert [(row.host, row.state) for row in found] == [
        (f"n{number}", "unreadable" if number == 3 else "measured") for number in range(5)
    ]
