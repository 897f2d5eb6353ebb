"""A row that somebody, or a disk, has changed: it is named, and the others are not lost with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from baseline.store.making import make_baseline, run_at
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from pyxfer import StoreError
from pyxfer._baseline import store_queries, store_schema
from pyxfer._baseline.cells import identity
from pyxfer._baseline.store import open_store
from pyxfer._cli.main import app
from pyxfer._document.codec import to_bare_json
from pyxfer._document.runs import Run


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with two baselines."""
    made = str(tmp_path / "store.db")
    with open_store(made) as store:
        store.add_baseline(make_baseline("good"))
        store.add_baseline(make_baseline("bad", labels={"n": "1"}))
        store.add_baseline(make_baseline("bad", labels={"n": "2"}))
    return made


def change(path: str, statement: str, value: object) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.execute(text(statement), {"value": value})
    engine.dispose()


def damage(path: str, fingerprint: object = "{") -> str:
    """The id of the newest baseline `bad`, whose fingerprint is no longer one."""
    with open_store(path) as store:
        bad = next(kept.id for kept in store.baselines() if kept.name == "bad")
    change(path, f"UPDATE pyxfer_baselines SET fingerprint = :value WHERE id = '{bad}'", fingerprint)
    return bad


def said(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("fingerprint", ["{", "", b"\xff", "[" * 100_000], ids=ascii)
def test_a_damaged_baseline_is_named_and_the_others_are_listed(path: str, fingerprint: object) -> None:
    bad = damage(path, fingerprint)
    lines = said("baseline", "list", "--store", path).splitlines()
    assert lines[0].startswith("1 baseline in ")
    assert lines[2].split()[0] == "good"
    assert f"the baseline {bad} ('bad' of 'node-7') in the store is damaged" in lines[3]
    assert f"pyxfer baseline remove {bad}" in lines[3]


def test_a_program_is_told_of_it_too(path: str) -> None:
    bad = damage(path)
    found = json.loads(CliRunner().invoke(app, ["baseline", "list", "--json", "--store", path]).stdout)
    assert [each["name"] for each in found["baselines"]] == ["good"]
    assert [(each["id"], each["name"], each["host"]) for each in found["damaged"]] == [(bad, "bad", "node-7")]


def test_the_others_are_shown_and_it_says_why_it_is_not(path: str) -> None:
    bad = damage(path)
    assert "good: node-7" in said("baseline", "show", "good", "--store", path)
    for name in ("bad", bad):
        assert f"the baseline {bad} ('bad' of 'node-7') in the store is damaged" in said(
            "baseline", "show", name, "--store", path, code=2
        )
    good = make_baseline("good")
    with open_store(path) as store:
        assert store.baseline("good", identity(good.fingerprint)) == good
        with pytest.raises(StoreError, match=f"{bad} .* is damaged"):
            store.baseline("bad", identity(good.fingerprint))


@pytest.mark.parametrize("by_name", [True, False])
def test_a_comparison_with_a_damaged_baseline_says_that_it_is_damaged(path: str, by_name: bool) -> None:
    bad = damage(path)
    text = said("compare", "baseline:bad" if by_name else bad, "baseline:good", "--store", path, code=2)
    assert f"the baseline {bad} ('bad' of 'node-7') in the store is damaged" in text
    assert f"pyxfer baseline remove {bad}" in text


def test_a_comparison_with_a_baseline_of_a_damaged_run_names_the_run(path: str) -> None:
    with open_store(path) as store:
        run_id = next(kept.run_ids[1] for kept in store.baselines() if kept.name == "bad")
    of_run = f"(SELECT seq FROM pyxfer_runs WHERE id = '{run_id}')"
    change(path, f"UPDATE pyxfer_documents SET document = :value WHERE run = {of_run}", b"")
    text = said("compare", "baseline:bad", "baseline:good", "--store", path, code=2)
    assert f"the document of the run {run_id} in the store is damaged: it is not what was stored" in text


def test_a_comparison_with_a_baseline_that_is_not_there_names_those_that_are(path: str) -> None:
    damage(path)
    text = said("compare", "baseline:none", "baseline:good", "--store", path, code=2)
    assert "has no baseline 'none'; it has 'good'" in text


NEWEST = "(SELECT MAX(seq) FROM pyxfer_baselines)"


@pytest.mark.parametrize(
    ("statement", "value", "why", "listed"),
    [
        (f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST} AND 0 = :value", 0, "its runs are gone", True),
        (
            f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST} AND place = :value",
            *(1, "some of its runs are gone", True),
        ),
        (
            f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST} AND place = :value",
            *(2, "it is not what was stored", False),
        ),
        (
            f"UPDATE pyxfer_baselines SET made_at = :value WHERE seq = {NEWEST}",
            *("2020-01-01T00:00:00+00:00", "it is not what was stored", False),
        ),
        (f"UPDATE pyxfer_baselines SET labels = :value WHERE seq = {NEWEST}", "{}", "it is not what was stored", False),
        (f"UPDATE pyxfer_baselines SET labels = :value WHERE seq = {NEWEST}", "!", "it is not what was stored", False),
        (
            f"UPDATE pyxfer_baselines SET made_at = :value WHERE seq = {NEWEST}",
            *("\\udcff", "it is not what was stored", False),
        ),
    ],
)
def test_a_baseline_that_is_no_longer_what_was_stored_is_damaged(
    path: str, statement: str, value: object, why: str, listed: bool, tmp_path: Path
) -> None:
    with open_store(path) as store:
        bad = next(kept.id for kept in store.baselines() if kept.name == "bad")
    change(path, statement, value)
    sentence = f"the baseline {bad} ('bad' of 'node-7') in the store is damaged: {why}; remove it with pyxfer baseline"
    assert (sentence in said("baseline", "list", "--store", path)) == listed
    for asked in (
        ("baseline", "show", "bad"),
        ("baseline", "export", bad, str(tmp_path / "bad.json")),
        ("compare", "baseline:bad", "baseline:good"),
    ):
        assert sentence in said(*asked, "--store", path, code=2)
    assert f"removed the damaged baseline {bad}" in said("baseline", "remove", bad, "--store", path)
    assert "bad: node-7" in said("baseline", "show", "bad", "--store", path), "the one before it stays"


@pytest.mark.parametrize("column", ["name", "host", "identity", "made_at", "stored_at", "labels", "sha256"])
@pytest.mark.parametrize("stored", [":value", "CAST(:value AS TEXT)"])
def test_a_text_that_is_none_damages_its_own_baseline_alone(path: str, column: str, stored: str) -> None:
    with open_store(path) as store:
        bad = next(kept.id for kept in store.baselines() if kept.name == "bad")
    change(path, f"UPDATE pyxfer_baselines SET {column} = {stored} WHERE seq = {NEWEST}", b"\xff")
    lines = said("baseline", "list", "--store", path)
    assert re.search(rf"the baseline {bad} .* in the store is damaged: its {column} is no text; remove it", lines)
    assert "good: node-7" in said("baseline", "show", "good", "--store", path)
    assert f"its {column} is no text" in said("baseline", "show", bad, "--store", path, code=2)
    assert f"removed the damaged baseline {bad}" in said("baseline", "remove", bad, "--store", path)
    assert "damaged" not in said("baseline", "list", "--store", path)


def test_a_damaged_baseline_is_imported_anew_from_its_export(path: str, tmp_path: Path) -> None:
    file = str(tmp_path / "bad.json")
    said("baseline", "export", "bad", file, "--store", path)
    assert "has this baseline already" in said("baseline", "import", file, "--store", path)
    change(path, f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST} AND place = :value", 2)
    assert "added 'bad'" in said("baseline", "import", file, "--store", path)
    assert "bad: node-7" in said("baseline", "show", "bad", "--store", path)


def test_a_baseline_with_a_host_in_a_foreign_encoding_is_as_it_was_stored(path: str) -> None:
    with open_store(path) as store:
        added = store.add_baseline(make_baseline("foreign", host="n\udcff"))
        assert store.baseline_of_id(added).fingerprint.host == "n\\udcff"


def test_a_baseline_of_runs_without_a_field_of_today_is_as_it_was_stored(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_ring(value: object) -> bytes:
        text, count = re.subn(rb',"ring":\{"value":null,"reason":"[^"]*"\}', b"", to_bare_json(value))
        assert count or not isinstance(value, Run)
        return text

    for module in (store_queries, store_schema):
        monkeypatch.setattr(module, "to_bare_json", without_ring)
    with open_store(path) as store:
        added = store.add_baseline(make_baseline("earlier"))
        monkeypatch.undo()
        assert len(store.baseline_of_id(added).runs) == 3


def test_a_damaged_baseline_is_removed_by_its_id_and_the_one_before_it_is_current(path: str) -> None:
    bad = damage(path)
    assert f"removed the damaged baseline {bad}" in said("baseline", "remove", bad, "--store", path)
    with open_store(path) as store:
        assert store.damaged_baselines() == []
        assert [(kept.name, kept.labels) for kept in store.baselines()] == [("bad", {"n": "1"}), ("good", {})]
        assert not store.remove_baseline_of_id(bad)


@pytest.mark.parametrize(
    ("statement", "value", "sentence"),
    [
        ("UPDATE pyxfer_measured SET gbps = :value", "fast", "gbps of the run r-.* is 'fast' and no number"),
        ("UPDATE pyxfer_measured SET low_gbps = :value", "low", "low_gbps of the run r-.* is 'low' and no number"),
        ("UPDATE pyxfer_cells SET nbytes = :value", "large", "its cell 1 is none"),
        ("UPDATE pyxfer_cells SET direction = :value", "up", "its cell 1 is none"),
        ("UPDATE pyxfer_measured SET host = :value", b"\xff", "it has bytes where text is"),
    ],
)
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_history_of_changed_figures_says_that_the_store_is_damaged(
    path: str, statement: str, value: object, sentence: str, form: str
) -> None:
    change(path, statement, value)
    with open_store(path) as store, pytest.raises(StoreError, match=f"the store is damaged: {sentence}"):
        store.history()
    assert "the store is damaged" in said("history", "--format", form, "--store", path, code=2)


def test_runs_in_which_nothing_was_measured_are_told(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db") as store:
        store.add_run(run_at(measurements=()))
        assert "the store has 1 run, with nothing measured in it" in store.history().remarks[0].text
        store.add_run(run_at(day=2))
        for _ in range(21):
            store.add_run(run_at(day=3, measurements=()))
        assert len(store.history().groups) == 1, "however many came after it"
