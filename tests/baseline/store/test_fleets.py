"""Hosts, fleets and the history of cells in a store: saved once, found by the store's time, collected for a verdict."""

from __future__ import annotations

import subprocess
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import pytest
from baseline.store import making, postgres
from baseline.store.making import database, make_baseline, run_at
from command_line import COMMAND, TIMEOUT_S, environment
from fleet_samples import HOSTILE, make_host, make_hosts
from msgspec.structs import replace
from samples import KIB, MIB, PAGEABLE, make_device, make_environment, make_measurement, make_missing
from sqlalchemy import make_url, text

from pyxfer import StoreError, UsageError
from pyxfer._baseline import store as stores
from pyxfer._baseline.store import Store, open_store
from pyxfer._baseline.store_database import LOCK
from pyxfer._baseline.store_tables import parse_since
from pyxfer._document.fleets import MAX_HOST_BYTES, HostReport
from pyxfer._document.machines import Fact, unknown
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


# --- the history of runs ---------------------------------------------------------------------------------------------


def days_of(store: Store, since: str | None = None) -> list[int]:
    (group,) = store.history(since=since).groups
    return [int(point.taken_at[8:10]) for point in group.points]


def test_a_history_has_every_run_in_order_of_time(store: Store) -> None:
    for day in (3, 1, 2):
        store.add_run(run_at(day, slower=1 + day / 100))
    (group,) = store.history("h2d:pinned:16MiB").groups
    assert [point.taken_at[:10] for point in group.points] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert group.median_gbps == group.points[1].gbps
    assert [round(point.change, 4) for point in group.points] == [1.0099, 1.0, 0.9903]
    assert (group.host, group.cell_text, group.remarks) == ("node-7", "h2d:pinned:16MiB", ())


def test_hosts_and_cells_are_separate_groups(store: Store) -> None:
    both = (make_measurement(), make_measurement(4 * KIB), make_measurement(route=PAGEABLE, memory="pageable"))
    store.add_run(run_at(1, host="b", measurements=both))
    store.add_run(run_at(1, host="a", measurements=both))
    found = [(group.host, group.cell_text) for group in store.history("h2d:pinned").groups]
    assert found == [(host, f"h2d:pinned:{size}") for host in "ab" for size in ("4KiB", "16MiB")]
    assert [group.host for group in store.history("h2d:pageable", host="a").groups] == ["a"]


def test_the_default_cell_is_pinned_memory_at_the_largest_size_of_the_newest_run(store: Store) -> None:
    sizes = (make_measurement(4 * KIB), make_measurement(), make_measurement(16 * MIB, "d2h"))
    store.add_run(run_at(1, measurements=sizes))
    assert [group.cell_text for group in store.history().groups] == ["d2h:pinned:16MiB", "h2d:pinned:16MiB"]


def test_without_pinned_memory_the_default_cell_is_the_first(store: Store) -> None:
    store.add_run(run_at(1, measurements=(make_measurement(route=PAGEABLE, memory="pageable", mode="memcpy"),)))
    assert [group.cell_text for group in store.history().groups] == ["h2d:pageable:16MiB"]


def test_the_workers_of_frameworks_are_separate_groups(store: Store) -> None:
    beside = tuple(make_measurement(worker=name) for name in ("torch", "jax"))
    store.add_run(run_at(1, measurements=(*beside, make_measurement())))
    assert [group.worker for group in store.history().groups] == [None, "jax", "torch"]


def test_measurements_without_a_time_or_with_wrong_contents_are_left_out(store: Store) -> None:
    store.add_run(run_at(1, measurements=(make_missing(), make_measurement(verified=Fact(False)))))
    assert store.history("h2d:pinned").groups == ()


def test_two_machines_of_one_name_are_separate_groups_with_a_remark(store: Store) -> None:
    for gpu in ("GPU-one", "GPU-two"):
        store.add_run(run_at(1, gpu=gpu))
    found = store.history()
    assert [group.gpu.value for group in found.groups] == ["GPU-one", "GPU-two"]
    assert [remark.code for remark in found.remarks] == ["same-name"]


def test_host_memory_is_a_separate_group(store: Store) -> None:
    store.add_run(run_at(1))
    memory = make_device(runtime="host", name="host memory", uuid=unknown("not a GPU"))
    store.add_run(run_at(1, device=memory, runtime="host"))
    assert [(group.runtime, group.device) for group in store.history().groups] == [
        ("host", "host memory"),
        ("cuda", "NVIDIA H200"),
    ]


def test_since_leaves_out_older_points(store: Store) -> None:
    for day in (1, 2, 3):
        store.add_run(run_at(day))
    assert days_of(store, since="2026-01-02") == [2, 3]
    assert store.history(since="1min").groups == ()


@pytest.mark.parametrize(
    ("text", "ago_s"), [("30d", 30 * 86400), ("12h", 43200), ("90min", 5400), ("2w", 1209600), (" 1 y ", 31536000)]
)
def test_since_may_be_a_duration(text: str, ago_s: int) -> None:
    assert parse_since(text, now_s=1e9) == 1e9 - ago_s


@pytest.mark.parametrize(
    "text", ["2026-01-31", "2026-01-31T00:00:00", "2026-01-31T00:00:00Z", "2026-01-31T01:00:00+01:00"]
)
def test_since_may_be_a_date(text: str) -> None:
    assert parse_since(text) == datetime(2026, 1, 31, tzinfo=timezone.utc).timestamp()


@pytest.mark.parametrize("text", ["", "soon", "30", "30 days", "-3d", "9999999d", "2026-13-01", "1e9", "0000-01-01"])
def test_an_invalid_since_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write 30d, 12h or a date"):
        parse_since(text)


def test_after_the_clock_went_back_points_are_in_the_order_of_storing(store: Store) -> None:
    later = make_environment(taken_at="2999-01-01T00:00:00+00:00")
    for each in (run_at(2).environment, later, run_at(1).environment):
        store.add_run(run_at(environment=each))
    (group,) = store.history().groups
    assert [point.taken_at[:10] for point in group.points] == ["2026-01-02", "2999-01-01", "2026-01-01"]
    assert [remark.code for remark in group.remarks] == ["clock"]


def test_storing_an_old_run_later_does_not_mean_that_the_clock_went_back(store: Store) -> None:
    store.add_run(run_at(5))
    store.add_baseline(make_baseline())
    assert days_of(store) == [1, 2, 3, 5]
    assert store.history().groups[0].remarks == ()


def test_of_more_points_than_the_limit_the_newest_are_shown_with_a_remark(store: Store) -> None:
    for day in (1, 2, 3, 4):
        store.add_run(run_at(day))
    found = store.history("h2d:pinned:16MiB", limit=3)
    assert [point.taken_at[8:10] for point in found.groups[0].points] == ["02", "03", "04"]
    assert [remark.code for remark in found.remarks] == ["limit"]


def test_an_empty_history_has_a_remark(store: Store) -> None:
    assert "no run yet" in store.history().remarks[0].text
    store.add_run(run_at())
    found = store.history("d2h:pinned", host="node-8")
    assert found.groups == ()
    assert [remark.code for remark in found.remarks] == ["nothing"]
    assert "(the cell 'd2h:pinned', the host 'node-8')" in found.remarks[0].text


def test_more_than_200_cells_are_refused(store: Store) -> None:
    store.add_run(run_at(measurements=tuple(replace(make_measurement(), nbytes=n) for n in range(1, 202))))
    with pytest.raises(UsageError, match="matches 201 cells"):
        store.history("h2d")


def test_runs_without_measurements_are_not_the_newest(store: Store) -> None:
    store.add_run(run_at(measurements=()))
    assert "the store has 1 run, without measurements" in store.history().remarks[0].text
    store.add_run(run_at(day=2))
    for day in range(3, 25):
        store.add_run(run_at(day=day, measurements=()))
    assert len(store.history().groups) == 1


def test_a_slow_time_that_has_ended_is_two_changes(store: Store) -> None:
    for day in range(1, 29):
        store.add_run(run_at(day, slower=(1.06 if 12 <= day < 19 else 1.0) + day % 3 / 1000))
    (group,) = store.history("h2d:pinned:16MiB").groups
    assert [change.taken_at[8:10] for change in group.changes] == ["12", "19"]
    assert [round(change.share, 2) for change in group.changes] == [-0.06, 0.06]


def test_a_history_without_a_change_has_the_loss_that_would_have_been_found(store: Store) -> None:
    for day in range(1, 29):
        store.add_run(run_at(day, slower=1 + day % 3 / 1000))
    (group,) = store.history("h2d:pinned:16MiB").groups
    assert (group.changes, group.drift) == ((), None)
    assert group.limit.value is not None
    assert 0.001 < group.limit.value.loss < 0.01
    assert group.limit.value.runs >= 5


def test_runs_that_follow_their_neighbours_have_a_remark(store: Store) -> None:
    slow = [1, 2, 3, 3, 4, 4, 3, 2, 1, 1, 2, 3, 4, 4, 4, 3, 3, 2, 1, 1, 1, 2, 3, 4, 4, 3, 2, 1]
    for day, level in enumerate(slow, start=1):
        store.add_run(run_at(day, slower=1 + level / 200))
    (group,) = store.history("h2d:pinned:16MiB").groups
    assert [remark.code for remark in group.remarks] == ["correlated"]


# --- many rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (stores._Query(None, None, None, None, 100), "pyxfer_measured_cell"),
        (stores._Query(None, None, "node-7", None, 100), "pyxfer_measured_host"),
        (stores._Query(None, None, None, 1e9, 100), "pyxfer_measured_cell"),
    ],
    ids=["a cell", "a host's cell", "since"],
)
def test_a_history_reads_an_index_and_not_every_row(tmp_path: Path, query: stores._Query, index: str) -> None:
    with stores.open_store(tmp_path / "store.db") as store:
        store.add_run(run_at())
        store.add_baseline(make_baseline())
        with store._database.reading() as connection:
            text = str(stores._points(1, query, 10).compile(connection, compile_kwargs={"literal_binds": True}))
            plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]
    assert any(f"USING INDEX {index}" in step for step in plan)
    assert not any(step.startswith("SCAN pyxfer_") for step in plan)
