"""Documents of hosts, and fleets, in a store: saved once, found by the store's time, and collected for a verdict."""

from __future__ import annotations

import subprocess
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from baseline.store import making, postgres
from baseline.store.making import database
from command_line import COMMAND, TIMEOUT_S, environment
from fleet_samples import HOSTILE, judged, make_fleet, make_host, make_hosts
from sqlalchemy import make_url, text

from pyxfer import StoreError, UsageError
from pyxfer._baseline.store import Store, open_store
from pyxfer._baseline.store_database import LOCK
from pyxfer._document.fleets import MAX_HOST_BYTES, Fleet, HostReport
from pyxfer._fleet.collect import Arrival, without_samples
from pyxfer._fleet.judge import judge
from pyxfer._fleet.run import read_stored, wait_for_stored

HOUR_S = 3600.0
RIGHTS = (  # as in docs/fleet.md
    "CREATE ROLE node LOGIN PASSWORD 'node'",
    "GRANT SELECT ON pyxfer_schema TO node",
    "GRANT SELECT, INSERT ON pyxfer_host_reports TO node",
    "GRANT USAGE ON SEQUENCE pyxfer_host_reports_seq_seq TO node",
)


def change(url: str, statement: str, **values: object) -> None:
    with database(url) as connection:
        connection.execute(text(statement), values)


def states(found: list[Arrival]) -> dict[str, str]:
    """The state of each row, by its source."""
    return {arrival.source: arrival.state for arrival in found}


def test_a_document_is_stored_as_it_is(store: Store) -> None:
    kept = store.add_host_report(make_host("n1"))
    assert store.add_host_report(make_host("n1")) == kept
    (stored,) = store.read_host_reports([kept])
    assert (stored.host, stored.report, stored.reason) == ("n1", make_host("n1"), None)


def test_the_time_of_storing_is_that_of_the_store(store: Store) -> None:
    began = store.moment("0min")
    store.add_host_report(make_host("n1", began_at="1999-01-01T00:00:00+00:00"))
    assert [kept.host for kept in store.host_reports(began)] == ["n1"]
    assert store.moment("2h") == pytest.approx(time.time() - 2 * HOUR_S, abs=60)


def test_older_documents_are_not_found(store: Store, store_url: str) -> None:
    store.add_host_report(make_host("n1"))
    change(store_url, "UPDATE pyxfer_host_reports SET stored_s = stored_s - 7260")
    store.add_host_report(make_host("n2"))
    assert [kept.host for kept in store.host_reports(store.moment("2h"))] == ["n2"]


def test_hostile_names_are_data(store: Store) -> None:
    for name in (HOSTILE, "back\\slash", "n3' OR '1'='1"):
        store.add_host_report(make_host(name))
        assert store.host_reports(0.0)[0].host == name
    store.add_host_report(make_host("n\0", labels={"a\0": "\0"}))
    assert store.host_reports(0.0)[0].host == "n\ufffd"


def test_a_document_without_a_name_gets_that_of_the_machine(store: Store) -> None:
    nameless = msgspec.structs.replace(make_host(cells=(), ended="failed"), environment=None)
    kept = store.add_host_report(nameless, "n1")
    assert [(found.host, found.state, found.source) for found in read_stored(store, 0.0)] == [("n1", "failed", kept)]


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (make_host(""), "1 to 253 characters"),
        (make_host("n" * 254), "1 to 253 characters"),
        (make_host("n1", facts={"driver": "x" * MAX_HOST_BYTES}), "at most 16 MiB"),
    ],
    ids=["no name", "long name", "large"],
)
def test_a_document_that_cannot_be_stored_is_refused(store: Store, report: HostReport, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        store.add_host_report(report)
    assert store.host_reports(0.0) == []


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "damaged"),
        (zlib.compress(b"{}"), "damaged"),
        (zlib.compress(bytes(MAX_HOST_BYTES + 1)), "larger than 16 MiB"),
        (bytes(MAX_HOST_BYTES + 1), "larger than 16 MiB"),
    ],
)
def test_a_changed_document_is_a_row_with_its_reason(store: Store, store_url: str, document: bytes, words: str) -> None:
    kept = store.add_host_report(make_host("n1"))
    change(store_url, "UPDATE pyxfer_host_reports SET document = :document", document=document)
    (arrival,) = read_stored(store, 0.0)
    assert (arrival.host, arrival.state, arrival.source, arrival.report) == ("n1", "unreadable", kept, None)
    assert words in (arrival.reason or "")


def test_the_newest_document_of_a_host_is_judged(store: Store) -> None:
    """Also if the host's clock has gone back."""
    ids = [store.add_host_report(make_host("n1", began_at=f"20{year}-01-01T00:00:00+00:00")) for year in (26, 25, 24)]
    found = read_stored(store, 0.0)
    assert states(found) == dict(zip(ids, ["duplicate", "duplicate", "measured"], strict=True))
    assert [host.state for host in judge(found).hosts].count("duplicate") == 2


def test_the_document_before_an_unreadable_one_is_judged(store: Store, store_url: str) -> None:
    ids = [store.add_host_report(make_host("n1", duration_s=float(number))) for number in (1, 2, 3)]
    change(store_url, "UPDATE pyxfer_host_reports SET sha256 = 'x' WHERE id = :id", id=ids[2])
    found = states(read_stored(store, 0.0))
    assert found == dict(zip(ids, ["duplicate", "measured", "unreadable"], strict=True))


def test_documents_of_many_hosts_are_all_read(store: Store) -> None:
    hosts = make_hosts(120, {7: 0.08})
    for report in hosts:
        store.add_host_report(report)
    found = {arrival.host: arrival.report for arrival in read_stored(store, 0.0)}
    assert found == {report.host: without_samples(report) for report in hosts}
    assert [host.host for host in judge(read_stored(store, 0.0)).with_verdict("suspect")] == ["n7"]


def test_named_hosts_without_a_document_are_late(store: Store) -> None:
    store.add_host_report(make_host("n1"))
    found, interrupted = wait_for_stored(store, "2h", ["n1", "n2", "n2", "n3' OR '1'='1"], 0.0)
    assert not interrupted
    assert [(arrival.host, arrival.state) for arrival in found] == [
        ("n1", "measured"),
        ("n2", "late"),
        ("n3' OR '1'='1", "late"),
    ]


@pytest.mark.slow
def test_the_wait_ends_when_the_last_host_has_stored(store_url: str) -> None:
    with open_store(store_url) as store, open_store(store_url) as other, ThreadPoolExecutor(1) as pool:

        def store_when_asked(progress: object) -> None:
            pool.submit(other.add_host_report, make_host("n1")).result()

        found, _ = wait_for_stored(store, "0min", ["n1"], 600.0, store_when_asked)
    assert [(arrival.host, arrival.state) for arrival in found] == [("n1", "measured")]


def test_a_role_that_may_only_add_documents_is_enough_for_a_host(postgres_server: postgres.Server) -> None:
    url = postgres_server.new_database()
    open_store(url).close()
    for statement in RIGHTS:
        change(url, statement)
    as_node = make_url(url).set(username="node", password="node").render_as_string(hide_password=False)
    with open_store(as_node) as store:
        kept = store.add_host_report(make_host("n1"))
        assert [found.id for found in store.host_reports(0.0)] == [kept]
        with pytest.raises(StoreError, match="permission denied"):
            store.baselines()
    change(url, "DROP OWNED BY node")
    change(url, "DROP ROLE node")
    postgres_server.drop(url)


@pytest.mark.slow
def test_a_job_that_is_ended_while_the_store_does_not_answer_keeps_its_document(
    postgres_server: postgres.Server, tmp_path: Path
) -> None:
    url = postgres_server.new_database()
    open_store(url).close()
    words = "fleet host --device host --name node-7 --budget 6s --save --store"
    job = [*COMMAND, *words.split(), url]
    variables = environment(PYXFER_HOSTRT="link=2e9:1e-6:1e9:1e-6", TMPDIR=str(tmp_path))
    with database(url) as other:
        other.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        with subprocess.Popen(
            job, env=variables, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            until = time.monotonic() + TIMEOUT_S
            while making.rows(url, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == []:
                assert time.monotonic() < until
                time.sleep(0.05)
            process.terminate()
            _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    (file,) = tmp_path.glob("pyxfer-host-*.json")
    assert str(file) in said
    assert HostReport.load(file).host == "node-7"
    postgres_server.drop(url)


# --- fleets -----------------------------------------------------------------------------------------------------------


def at(fleet: Fleet, day: int) -> Fleet:
    return msgspec.structs.replace(fleet, judged_at=f"2026-11-{day:02}T12:00:00+00:00")


def test_a_fleet_is_stored_once(store_url: str) -> None:
    with open_store(store_url) as store:
        kept = store.add_fleet(make_fleet())
        assert store.add_fleet(make_fleet()) == kept
        (line,) = store.fleets()
    assert (line.id, line.hosts, line.slow, line.suspect, line.not_judged) == (kept, 42, 2, 0, 1)


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


def test_a_name_with_a_zero_is_stored(store_url: str) -> None:
    with open_store(store_url) as store:
        store.add_fleet(judged([make_host("n\0", labels={"a\0": "\0"}), *make_hosts(20)]))
        assert len(store.fleet_history("n\0")) == 1
        assert store.fleet_history("n3' OR '1'='1") == []
