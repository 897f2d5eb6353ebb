"""Saves by many processes at once, by killed processes, and to servers that are killed."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from baseline.store import contents, postgres, writers
from baseline.store.making import run_at

from pyxfer._baseline.store import Store

pytestmark = pytest.mark.unsanitized(reason="it tests processes and databases, and does not use the engine")


def keys_by_ending(lines: list[tuple[str, str]]) -> dict[str, list[str]]:
    return {ending: [key for ended, key in lines if ended == ending] for ending in ("stored", "refused")}


@pytest.mark.slow
def test_many_processes_can_open_a_new_store_and_save_at_once(store_url: str) -> None:
    with writers.started(store_url, processes=16, saves=3) as process:
        saves = keys_by_ending(list(writers.lines_of(process)))
    assert len(saves["stored"]) == 48
    assert Counter(contents.keys(store_url)) == Counter(saves["stored"])
    assert contents.rows(store_url, "SELECT version FROM pyxfer_schema") == [(1,)]


def test_a_forked_child_and_its_parent_can_both_save(store: Store, store_url: str) -> None:
    store.add_run(run_at(1), {"key": "before"})
    child = os.fork()
    if child == 0:
        try:
            store.add_run(run_at(2), {"key": "child"})
        finally:
            os._exit(0)
    store.add_run(run_at(3), {"key": "parent"})
    os.waitpid(child, 0)
    store.add_run(run_at(4), {"key": "after"})
    assert set(contents.keys(store_url)) == {"before", "child", "parent", "after"}


@pytest.mark.slow
def test_a_killed_server_loses_no_save_that_succeeded(
    postgres_server: postgres.Server,
) -> None:
    url = postgres_server.new_database()
    with writers.started(url, processes=6, saves=60) as process:
        lines = list(writers.lines_of(process, most=20))
        for end in (postgres_server.kill, postgres_server.stop_at_once) * 2:
            end()
            postgres_server.start()
            lines += writers.lines_of(process, most=30)
        lines += writers.lines_of(process)
    saves = keys_by_ending(lines)
    assert len(saves["stored"]) == 360
    assert Counter(contents.keys(url)) == Counter(saves["stored"]), "every save is stored once, also a repeated one"
    postgres_server.drop(url)


@pytest.mark.slow
def test_killed_writers_leave_only_complete_saves(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")
    stored: list[str] = []
    for _ in range(4):
        with writers.started(url, processes=4, saves=1000) as process:
            stored += keys_by_ending(list(writers.lines_of(process, most=15)))["stored"]
            writers.kill(process)
            stored += keys_by_ending(list(writers.lines_of(process)))["stored"]
    assert contents.rows(url, "PRAGMA integrity_check") == [("ok",)]
    assert set(stored) <= set(contents.keys(url))
