"""A row that somebody, or a disk, has changed: it is named, and the others are not lost with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from baselines.store.making import make_baseline, run_at
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from pyxfer import StoreError
from pyxfer.baselines.fingerprint import identity
from pyxfer.baselines.store import open_store
from pyxfer.cli.main import app


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
