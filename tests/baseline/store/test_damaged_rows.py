"""A row that cannot be decoded, or is not what was stored, is an error that names it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from baseline.store.earlier import database
from baseline.store.making import make_baseline
from sqlalchemy import text
from typer.testing import CliRunner

from pyxfer import StoreError
from pyxfer._baseline import store_schema
from pyxfer._baseline.cells import identity
from pyxfer._baseline.store import open_store
from pyxfer._cli.main import app
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


@pytest.mark.parametrize(("column", "value"), [("fingerprint", "{"), ("fingerprint", b"\xff"), ("labels", "!")])
def test_a_baseline_that_cannot_be_decoded_is_named(path: str, column: str, value: object) -> None:
    bad = id_of_bad(path)
    change(path, f"UPDATE pyxfer_baselines SET {column} = :value WHERE seq = {NEWEST}", value)
    good = make_baseline("good")
    key = identity(good.fingerprint)
    with open_store(path) as store:
        for ask in (store.baselines, lambda: store.baseline("bad", key), lambda: store.baseline_of_id(bad)):
            with pytest.raises(StoreError, match=bad):
                ask()
        assert store.baseline("good", key) == good
        assert store.remove_baseline_of_id(bad)
        assert [(kept.name, kept.labels) for kept in store.baselines()] == [("bad", {"n": "1"}), ("good", {})]


@pytest.mark.parametrize(
    "statement",
    [
        f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST}",
        f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST} AND place = 2",
        f"UPDATE pyxfer_baselines SET made_at = '2020-01-01T00:00:00+00:00' WHERE seq = {NEWEST}",
        f"UPDATE pyxfer_baselines SET labels = '{{}}' WHERE seq = {NEWEST}",
    ],
)
def test_a_baseline_that_differs_from_what_was_stored_is_not_used(path: str, statement: str, tmp_path: Path) -> None:
    bad = id_of_bad(path)
    change(path, statement)
    for asked in (
        ("baseline", "show", "bad"),
        ("baseline", "export", bad, str(tmp_path / "bad.json")),
        ("compare", "baseline:bad", "baseline:good"),
    ):
        result = CliRunner().invoke(app, [*asked, "--store", path])
        assert result.exit_code == 2
        assert f"the baseline {bad} ('bad' of 'node-7') in the store is damaged" in result.output


def test_a_damaged_document_of_a_run_is_named(path: str) -> None:
    with open_store(path) as store:
        run_id = next(kept.run_ids[1] for kept in store.baselines() if kept.name == "bad")
        of_run = f"(SELECT seq FROM pyxfer_runs WHERE id = '{run_id}')"
        change(path, f"UPDATE pyxfer_documents SET document = :value WHERE run = {of_run}", b"")
        for ask in (lambda: store.run(run_id), lambda: store.baseline_of_id(id_of_bad(path))):
            with pytest.raises(StoreError, match=f"the document of the run {run_id} .* is damaged"):
                ask()


def test_labels_of_a_run_that_cannot_be_decoded_are_named(path: str) -> None:
    change(path, "UPDATE pyxfer_runs SET labels = '{'")
    with open_store(path) as store:
        run_id = store.baselines()[0].run_ids[0]
        with pytest.raises(StoreError, match=run_id):
            store.run(run_id)


@pytest.mark.parametrize(("column", "value"), [("nbytes", "large"), ("direction", "up")])
def test_a_cell_that_cannot_be_decoded_is_named(path: str, column: str, value: str) -> None:
    change(path, f"UPDATE pyxfer_cells SET {column} = :value", value)
    for cell in (None, "h2d:pinned"):
        with open_store(path) as store, pytest.raises(StoreError, match="the cell 1 in the store is damaged"):
            store.history(cell)


def test_a_baseline_of_runs_without_a_field_of_today_is_as_it_was_stored(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_ring(value: object) -> bytes:
        data, count = re.subn(rb',"ring":\{"value":null,"reason":"[^"]*"\}', b"", to_bare_json(value))
        assert count or not isinstance(value, Run)
        return data

    monkeypatch.setattr(store_schema, "to_bare_json", without_ring)
    with open_store(path) as store:
        added = store.add_baseline(make_baseline("earlier"))
        monkeypatch.undo()
        assert len(store.baseline_of_id(added).runs) == 3
