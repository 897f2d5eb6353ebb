"""Queries of a store with the runs of 300 hosts on every day of a year."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from baseline.store import contents
from baseline.store.making import make_baseline
from samples import make_environment, make_measurement, make_run
from sqlalchemy import text

from pyxfer._baseline.fingerprints import identity
from pyxfer._baseline.store import open_store

HOSTS, DAYS = 300, 365
MOST_S = 1.0
CELLS = (make_measurement(), make_measurement(side="d2h"))

NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {count}) "
# One run of each host on each day: `n / hosts` is the day, the remainder the host.
RUNS = """
INSERT INTO pyxfer_runs
  (id, stored_at, stored_s, taken_at, taken_s, host, gpu, device, runtime, identity, labels, sha256)
{numbers}
SELECT 'r-' || n, '2026-01-01T00:00:00+00:00', 1e9 + 86400 * (n / {hosts}) + 60, '2026-01-01T00:00:00+00:00',
       1e9 + 86400 * (n / {hosts}), 'host-' || (n % {hosts}), 'GPU-' || (n % {hosts}), 'H200', 'cuda',
       'f-' || (n % {hosts}), '{{}}', 'none'
FROM numbers
"""
MEASURED = """
INSERT INTO pyxfer_measured (run, place, cell, host, taken_s, gbps, low_gbps, high_gbps, median_s)
SELECT r.seq, c.id, c.id, r.host, r.taken_s, 50 + r.seq % 7, 49, 58, 0.001 FROM pyxfer_runs r, pyxfer_cells c
WHERE r.sha256 = 'none' AND (c.cell LIKE '%"side":"h2d"%' OR r.seq % 10 = 0)
"""
BASELINES = """
INSERT INTO pyxfer_baselines (id, name, identity, host, fingerprint, made_at, stored_at, labels, sha256)
{numbers}
SELECT 'b-' || n, b.name, 'f-' || n, 'host-' || n, b.fingerprint, b.made_at, b.stored_at, b.labels, 'none'
FROM numbers, pyxfer_baselines b WHERE b.id = :like
"""
BASELINE_RUNS = """
INSERT INTO pyxfer_baseline_runs (baseline, place, run)
SELECT b.seq, l.place, l.run FROM pyxfer_baselines b, pyxfer_baseline_runs l WHERE b.sha256 = 'none'
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = str(tmp_path_factory.mktemp("large") / "store.db")
    with open_store(made) as store:
        store.add_run(make_run(environment=make_environment(host="host-0"), measurements=CELLS))
        baseline_id = store.add_baseline(make_baseline(host="host-0"))
    with contents.database(made) as connection:
        connection.exec_driver_sql("PRAGMA synchronous=OFF")  # a crash may lose these rows
        connection.execute(text(RUNS.format(numbers=NUMBERS.format(count=HOSTS * DAYS), hosts=HOSTS)))
        connection.execute(text(MEASURED))
        connection.execute(text(BASELINES.format(numbers=NUMBERS.format(count=HOSTS))), {"like": baseline_id})
        connection.execute(text(BASELINE_RUNS))
    return made


def processor_s(query: Callable[[], object]) -> float:
    """Processor time of this process. That of a server is not included."""
    begun = time.process_time()
    query()
    return time.process_time() - begun


@pytest.mark.unsanitized(reason="it measures time")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "points"),
    [
        ({"host": "host-200", "cell": "h2d:pinned:16MiB"}, DAYS),
        ({"host": "host-200"}, None),
        ({"cell": "h2d:pinned:16MiB"}, 10_000),
        ({"cell": "h2d:pinned", "since": "2002-09-01"}, None),
        ({}, None),
    ],
    ids=["a host's cell", "a host", "a cell", "since", "all"],
)
def test_a_history_takes_less_than_a_second_of_a_processor(
    url: str, arguments: dict[str, str], points: int | None
) -> None:
    def query() -> None:
        with open_store(url, create=False) as store:
            found = store.history(arguments.get("cell"), host=arguments.get("host"), since=arguments.get("since"))
        count = sum(len(group.points) for group in found.groups)
        assert count == points if points else count > 0

    assert processor_s(query) < MOST_S


@pytest.mark.unsanitized(reason="it measures time")
@pytest.mark.slow
def test_finding_and_listing_baselines_takes_less_than_a_second_of_a_processor(url: str) -> None:
    wanted = make_baseline(host="host-0")

    def query() -> None:
        with open_store(url, create=False) as store:
            assert store.baseline("default", identity(wanted.fingerprint)) == wanted
            assert len(store.baselines()) == HOSTS + 1

    assert processor_s(query) < MOST_S
