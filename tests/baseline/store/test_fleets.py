"""Fleets in a store: saved once, listed, and the history of a host."""

from __future__ import annotations

import msgspec
import pytest
from baseline.store.contents import database
from fleet_samples import HOSTILE, judged, make_fleet, make_host, make_hosts
from sqlalchemy import text

from pyxfer import StoreError
from pyxfer._baseline.store import open_store
from pyxfer._document.fleets import Fleet


def at(fleet: Fleet, day: int) -> Fleet:
    return msgspec.structs.replace(fleet, judged_at=f"2026-11-{day:02}T12:00:00+00:00")


def test_a_fleet_is_stored_as_it_is(store_url: str) -> None:
    with open_store(store_url) as store:
        kept = store.add_fleet(make_fleet())
        assert store.fleet(kept) == make_fleet()
        (line,) = store.fleets()
    assert (line.id, line.hosts, line.slow, line.suspect, line.not_judged) == (kept, 42, 2, 0, 1)


def test_the_same_fleet_is_stored_once(store_url: str) -> None:
    with open_store(store_url) as store:
        assert store.add_fleet(make_fleet()) == store.add_fleet(make_fleet())
        assert len(store.fleets()) == 1


def test_the_history_of_a_host_has_every_fleet_in_order(store_url: str) -> None:
    slow, fine = judged(make_hosts(20, {7: 0.08})), judged(make_hosts(20))
    with open_store(store_url) as store:
        for fleet in (at(slow, 3), at(fine, 1), at(fine, 2)):
            store.add_fleet(fleet)
        points = store.fleet_history("n7")
        assert [point.judged_at[8:10] for point in store.fleet_history("n7", limit=2)] == ["02", "03"]
    assert [point.verdict for point in points] == ["fine", "fine", "slow"]
    assert points[2].cell == "h2d:gpu0:pinned:256MiB"
    assert points[2].loss == pytest.approx(0.08, abs=0.01)
    value, usual = points[2].figures["h2d:gpu0:pinned:256MiB"]
    assert usual is not None
    assert value / usual == pytest.approx(0.92, abs=0.01)


def test_an_older_document_of_a_host_is_no_point(store_url: str) -> None:
    old = make_host("n7", began_at="2020-01-01T00:00:00+00:00")
    with open_store(store_url) as store:
        store.add_fleet(judged([old, *make_hosts(20)]))
        assert [point.state for point in store.fleet_history("n7")] == ["measured"]


def test_a_hostile_name_is_data(store_url: str) -> None:
    with open_store(store_url) as store:
        store.add_fleet(make_fleet())
        assert len(store.fleet_history(HOSTILE)) == 1
        assert store.fleet_history("n3' OR '1'='1") == []


def test_a_name_with_a_zero_is_stored(store_url: str) -> None:
    with open_store(store_url) as store:
        store.add_fleet(judged([make_host("n\0", labels={"a\0": "\0"}), *make_hosts(20)]))
        assert len(store.fleet_history("n\0")) == 1


def test_a_fleet_that_has_changed_in_the_store_is_refused(store_url: str) -> None:
    with open_store(store_url) as store:
        kept = store.add_fleet(make_fleet())
        with database(store_url) as connection:
            connection.execute(text("UPDATE pyxfer_fleets SET sha256 = 'x'"))
        with pytest.raises(StoreError, match="damaged"):
            store.fleet(kept)


def test_an_unknown_fleet_is_refused(store_url: str) -> None:
    with open_store(store_url) as store, pytest.raises(StoreError, match="no fleet 'f-1'"):
        store.fleet("f-1")
