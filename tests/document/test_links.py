"""The links document: its methods, its exports, and the checks where it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from link_samples import make_links
from marks import slow

import pyxfer
from pyxfer._document import codec
from pyxfer._document.links import Links
from pyxfer._document.machines import unknown
from pyxfer.errors import DocumentError, UsageError

RUN = make_links()


def test_a_document_survives_a_file(tmp_path: Path) -> None:
    path = tmp_path / "links.json"
    RUN.save(path)
    assert Links.load(path) == RUN
    assert path.read_text().count('"round"') < path.read_text().count("\n")


def test_rows_are_found_by_their_names() -> None:
    assert RUN.pair(0, 1).gbps == pytest.approx(396.1, rel=1e-3)
    assert RUN.pair(1, 0, access="read", engine="sm").gbps == pytest.approx(370.0, rel=1e-3)
    together = RUN.together("both")
    assert together.gbps == pytest.approx(2 * (29.7 + 51.5), rel=1e-3)
    assert together.sum_alone_gbps.value == pytest.approx(2 * (55.5 + 55.4), rel=1e-3)
    assert together.slowest_gbps.value == pytest.approx(29.7, rel=1e-3)
    assert together.least_overlap == 0.972
    assert RUN.latency("host").ns == pytest.approx(1181, rel=1e-3)
    assert RUN.latency("host", device=1, load=1.0).ns == pytest.approx(2362, rel=1e-3)
    assert RUN.latency("peer").target == 1
    assert RUN.latency("self").target == 0
    assert RUN.interference.keep(0, 1, "d2h") == pytest.approx(1.0)
    assert RUN.interference.keep(0, 7) is None


def test_missing_rows_are_named() -> None:
    bare = make_links(groups=("local",))
    for ask in (
        lambda: bare.pair(0, 1),
        lambda: bare.together("h2d"),
        lambda: bare.latency("host"),
        lambda: bare.interference,
        lambda: RUN.pair(0, 0),
    ):
        with pytest.raises(UsageError):
            ask()
    with pytest.raises(UsageError, match="0 to 1, 1 to 0"):
        RUN.pair(3, 4)


def test_the_document_is_public_and_prints_itself() -> None:
    assert pyxfer.Links is Links
    assert RUN.text().splitlines()[0].startswith("2 x NVIDIA H200, PCIe 5.0 x16, 256 B payload")
    assert "<table>" in RUN._repr_html_()
    assert repr(RUN).count("\n") == 0


def changed(document: Any, *path: str | int, value: Any) -> None:
    for part in path[:-1]:
        document = document[part]
    document[path[-1]] = value


def _index(group: str, case: str, engine: str = "ce") -> int:
    return next(i for i, row in enumerate(RUN.traffics) if (row.group, row.case, row.engine) == (group, case, engine))


BOTH, ALONE, PAIR = _index("together", "both"), _index("host", "h2d"), _index("pairs", "read")
CHANGES: list[tuple[tuple[str | int, ...], Any]] = [
    (("traffics", ALONE, "total", "value", "gbps"), 56.0),
    (("traffics", BOTH, "total", "value", "gbps"), 221.8),
    (("traffics", BOTH, "sum_alone_gbps", "value"), 200.0),
    (("traffics", BOTH, "flows", 0, "alone_share", "value", "value"), 0.9),
    (("traffics", BOTH, "flows", 0, "rate", "value", "gbps"), 55.0),
    (("traffics", BOTH, "flows", 0, "device"), 5),
    (("traffics", BOTH, "flows", 0, "side"), "d2h"),
    (("traffics", BOTH, "trials", 1, "seconds"), 0.1),
    (("traffics", BOTH, "trials", 0, "nbytes"), [1.0]),
    (("traffics", PAIR, "flows", 0, "peak_share", "value"), 0.99),
    (("traffics", PAIR, "flows", 0, "verified", "value"), False),
    (("traffics", PAIR, "flows", 0, "rate", "value", "low_gbps"), 500.0),
    (("traffics", PAIR, "nbytes"), 0),
    (("devices", 0, "link", "h2d_peak_gbps", "value"), 99.0),
    (("devices", 0, "device", "index"), 1),
    (("latencies", 0, "p50", "value", "ns"), 900.0),
    (("latencies", 0, "load"), 2.0),
    (("latencies", 2, "trials", 0, "p99_ns"), 1.0),
    (("small", 0, "rate", "value", "gbps"), 9.0),
    (("small", 0, "seconds"), [-1.0]),
    (("sharing", "keeps", 0, "share", "value", "value"), 0.5),
    (("sharing", "pairs"), 7),
    (("sharing", "groups", "value"), [{"direction": "h2d", "devices": [0, 1], "keeps": 0.5, "tree": "hidden"}]),
    (
        ("sharing", "slow"),
        {"value": [{"case": "h2d", "source": -1, "destination": 0, "gbps": 9.0, "usual_gbps": 8.0}], "reason": None},
    ),
    (("parameters", "precision"), 0),
    (("sharing", "error_rate"), 1.5),
]


@pytest.mark.parametrize(("path", "value"), [each if i < 10 else slow(*each) for i, each in enumerate(CHANGES)])
def test_a_figure_that_was_changed_is_found(path: tuple[str | int, ...], value: Any) -> None:
    document = msgspec.json.decode(codec.encode(RUN))
    changed(document, *path, value=value)
    with pytest.raises(DocumentError, match=r"measure again|not a pyxfer"):
        codec.decode(Links, codec.seal(msgspec.json.encode(document)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: RUN,
        lambda: make_links(1),
        slow(lambda: make_links(4)),
        lambda: make_links(2, groups=("small",)),
        lambda: make_links(2, groups=("latency",), ended="interrupted"),
        lambda: make_links(2, nodes=(0, 1)),
        lambda: msgspec.structs.replace(make_links(1, groups=("local",)), ended="failed", failure="the device is gone"),
    ],
)
def test_what_a_run_may_write_is_read_again(make: Callable[[], Links]) -> None:
    run = make()
    assert codec.decode(Links, codec.encode(run)) == run
    assert run.text()
    assert run.to_markdown()


def test_a_p99_that_a_busy_host_did_not_give_is_read_again() -> None:
    number = next(i for i, row in enumerate(RUN.latencies) if row.p99.value is not None)
    row = RUN.latencies[number]
    few = msgspec.structs.replace(row.trials[0], launches=40, p99_ns=None)
    row = msgspec.structs.replace(row, trials=(few, *row.trials[1:]), p99=unknown("too few launches in a trial"))
    run = msgspec.structs.replace(RUN, latencies=(*RUN.latencies[:number], row, *RUN.latencies[number + 1 :]))
    assert codec.decode(Links, codec.encode(run)) == run
