"""Rows that have changed since they were stored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from baseline.store.contents import database
from baseline.store.making import make_baseline
from sqlalchemy import text
from typer.testing import CliRunner

from pyxfer import StoreError
from pyxfer._baseline import store_rows
from pyxfer._baseline.store import open_store
from pyxfer._cli.main import app
from pyxfer._document import codec
from pyxfer._document.codec import to_bare_json
from pyxfer._document.runs import Run

NEWEST = "(SELECT MAX(seq) FROM pyxfer_baselines)"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with two baselines."""
    made = str(tmp_path / "store.db")
    with open_store(made) as store:
        store.add_baseline(make_baseline("good"))
        store.add_baseline(make_baseline("bad", labels={"n": "1"}))
        store.add_baseline(make_baseline("bad", labels={"n": "2"}))
    return made


def id_of_bad(path: str) -> str:
    with open_store(path) as store:
        return next(kept.id for kept in store.baselines() if kept.name == "bad")


def change(path: str, statement: str, value: object = None) -> None:
    with database(path) as connection:
        connection.execute(text(statement), {"value": value} if ":value" in statement else {})


@pytest.mark.parametrize(
    "statement",
    [
        f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST}",
        f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST} AND place = 2",
        f"UPDATE pyxfer_baselines SET made_at = '2020-01-01T00:00:00+00:00' WHERE seq = {NEWEST}",
        f"UPDATE pyxfer_baselines SET labels = '{{}}' WHERE seq = {NEWEST}",
    ],
)
def test_a_changed_baseline_is_an_error_that_names_it(path: str, statement: str, tmp_path: Path) -> None:
    bad = id_of_bad(path)
    change(path, statement)
    for arguments in (
        ("baseline", "show", "bad"),
        ("baseline", "export", bad, str(tmp_path / "bad.json")),
        ("compare", "baseline:bad", "baseline:good"),
    ):
        result = CliRunner().invoke(app, [*arguments, "--store", path])
        assert result.exit_code == 2
        assert f"the baseline {bad} ('bad' of 'node-7') in the store is damaged" in result.output


def test_a_changed_baseline_can_be_removed_by_its_id(path: str) -> None:
    bad = id_of_bad(path)
    change(path, f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST}")
    with open_store(path) as store:
        assert store.remove_baseline_of_id(bad)
        assert [(kept.name, kept.labels) for kept in store.baselines()] == [("bad", {"n": "1"}), ("good", {})]


def test_a_changed_document_is_an_error_that_names_its_run(path: str) -> None:
    with open_store(path) as store:
        run_id = next(kept.run_ids[1] for kept in store.baselines() if kept.name == "bad")
        of_run = f"(SELECT seq FROM pyxfer_runs WHERE id = '{run_id}')"
        change(path, f"UPDATE pyxfer_documents SET document = :value WHERE run = {of_run}", b"")
        for read in (lambda: store.run(run_id), lambda: store.baseline_of_id(id_of_bad(path))):
            with pytest.raises(StoreError, match=f"the run {run_id} .* is damaged"):
                read()


def test_runs_without_a_newer_field_are_not_changed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_ring(value: object) -> bytes:
        data, count = re.subn(rb',"ring":\{"value":null,"reason":"[^"]*"\}', b"", to_bare_json(value))
        assert count or not isinstance(value, Run)
        return codec.seal(data)

    monkeypatch.setattr(store_rows, "to_sealed_json", without_ring)
    with open_store(path) as store:
        added = store.add_baseline(make_baseline("earlier"))
        monkeypatch.undo()
        assert len(store.baseline_of_id(added).runs) == 3
