"""Files whose figures disagree or are impossible are refused, with the field; any other file is one or an error."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from explain_samples import make_explain_run
from fleet_samples import make_fleet, make_host
from hostile import numbers, with_number
from hypothesis import example, given
from hypothesis import strategies as st
from link_samples import make_links
from marks import slow
from samples import make_link, make_measurement, make_missing, make_run, retimed
from watch_samples import make_stalled, make_watched

from pyxfer import Run
from pyxfer._document import checks, codec
from pyxfer._document.fleets import Fleet, fleet_problems, host_problems
from pyxfer._document.links import Links
from pyxfer._document.machines import Fact, Hop, LinkState, unknown
from pyxfer._document.runs import Measurement, Share
from pyxfer._document.watches import Watched
from pyxfer._machine.link import with_load
from pyxfer.errors import DocumentError, UsageError

replace = msgspec.structs.replace
CURVE, LOCKING = make_run().curves[0], make_run().locking[0]
RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"


def refusal(run: Run) -> str:
    """The field that a run is refused for."""
    with pytest.raises(DocumentError) as caught:
        codec.decode(Run, codec.encode(run), "run.json")
    text = str(caught.value)
    assert text.startswith("run.json")
    _, of_type, field = text.partition(" - at `$.")
    return field.partition("`")[0] if of_type else text.partition(": ")[2].split()[0]


def accepted(run: Run) -> None:
    assert codec.decode(Run, codec.encode(run)) == run


def with_row(row: Measurement) -> Run:
    return make_run(measurements=(row,), curves=(), locking=())


def of_summary(**parts: Any) -> Measurement:
    row = make_measurement()
    assert row.summary is not None
    return replace(row, summary=replace(row.summary, **parts))


def of_rate(**parts: Any) -> Measurement:
    row = make_measurement()
    assert row.rate.value is not None
    return replace(row, rate=Fact(replace(row.rate.value, **parts)))


def of_trial(index: int, **parts: Any) -> Measurement:
    trials = list(make_measurement().trials)
    trials[index] = replace(trials[index], **parts)
    return make_measurement(trials=tuple(trials))


def test_a_run_as_pyxfer_writes_it_is_accepted() -> None:
    accepted(make_run())


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (make_measurement(batch=0), "batch"),
        (make_measurement(rate=unknown("none")), "peak_share.value"),
        (make_measurement(summary=None), "summary"),
        (of_summary(low_s=None), "summary.low_s"),
        (of_summary(rule="median-lrv-0"), "summary.rule"),
        (of_summary(rule=None), "summary.rule"),
        (make_measurement(ceiling_share=Fact(Share(1.0, None, None))), "ceiling_share.value.low"),
        (of_rate(low_gbps=None), "rate.value.low_gbps"),
        (make_missing(peak_share=Fact(0.5)), "peak_share.value"),
        (make_missing(ceiling_share=Fact(Share(0.5, None, None))), "ceiling_share.value"),
        (replace(make_measurement(), summary=None, trials=()), "rate.value"),
        (of_trial(2, copies=0), "trials[2]"),
        (of_trial(2, invalid="the gate timed out"), "rate.value"),
    ],
)
def test_a_row_that_disagrees_is_refused(row: Measurement, field: str) -> None:
    assert refusal(with_row(row)).startswith(f"measurements[0].{field}")


@pytest.mark.parametrize(
    ("link", "field"),
    [
        ({"raw_peak_gbps": Fact(126.0)}, "link.raw_peak_gbps.value"),
        ({"h2d_peak_gbps": Fact(63.0)}, "link.h2d_peak_gbps.value"),
        ({"d2h_peak_gbps": Fact(63.0)}, "link.d2h_peak_gbps.value"),
        ({"max_payload_bytes": Fact(512)}, "link.h2d_peak_gbps.value"),
        ({"h2d_peak_gbps": unknown("no"), "d2h_peak_gbps": Fact(63.0)}, "link.h2d_peak_gbps.value"),
        ({"max_payload_bytes": unknown("no")}, "link.h2d_peak_gbps.value"),
        ({"now": Fact(LinkState(4, 8)), "under_load": unknown("no")}, ""),
    ],
)
def test_a_link_that_disagrees_is_refused(link: dict[str, Any], field: str) -> None:
    run = make_run(link=make_link(**link), measurements=(), curves=(), locking=())
    if field:
        assert refusal(run) == field
    else:
        accepted(run)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"precision": -0.1}, "precision"),
        ({"budget_s": 0.0}, "budget_s"),
        ({"sizes_bytes": (4096, -1)}, "sizes_bytes[1]"),
        ({"batches": (1, 0)}, "batches[1]"),
    ],
)
def test_parameters_out_of_range_are_refused(change: dict[str, Any], field: str) -> None:
    run = make_run()
    assert refusal(replace(run, parameters=replace(run.parameters, **change))) == f"parameters.{field}"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"duration_s": -1.0}, "duration_s"),
        ({"curves": (replace(CURVE, latency_s=Fact(-1e-6)),)}, "curves[0].latency_s.value"),
        ({"curves": (CURVE, CURVE)}, "curves"),
        ({"locking": (replace(LOCKING, nbytes=0),)}, "locking[0].nbytes"),
        ({"locking": (replace(LOCKING, summary=of_summary(n=0).summary),)}, "locking[0].summary.n"),
    ],
)
def test_other_figures_out_of_range_are_refused(change: dict[str, Any], field: str) -> None:
    assert refusal(make_run(**change)) == field


@pytest.mark.parametrize(("share", "field"), [(0.999, ""), (1.001, "measurements[0].rate.gbps")])
def test_a_rate_above_what_the_link_can_carry_is_refused(share: float, field: str) -> None:
    row = make_measurement()
    gbps = share * (make_link().most_gbps("h2d") or 0.0)
    run = with_row(retimed(row, [row.moved_bytes / gbps / 1e9] * 8))
    if field:
        assert refusal(run) == field
    else:
        accepted(run)


@pytest.mark.parametrize("seconds", [[], [3e-4], [0.0, 3.1e-4, 3.2e-4]])
def test_a_row_of_few_trials_is_accepted(seconds: list[float]) -> None:
    accepted(with_row(retimed(make_measurement(), seconds) if seconds else make_missing()))


def test_a_trial_that_took_no_time_has_no_ratio() -> None:
    row = retimed(make_measurement(), [0.0, 3e-4, 3e-4])
    accepted(with_row(replace(row, ceiling_share=Fact(Share(1.0, None, None)))))


def test_the_peak_of_a_link_above_that_was_read_idle_is_accepted() -> None:
    narrow = Hop("0000:3a:00.0", Fact(LinkState(1, 8)), Fact(LinkState(5, 16)))
    link = with_load(make_link(hops=(make_link().hops[0], narrow)), Fact(LinkState(5, 16)))
    assert link.raw_peak_gbps.value == pytest.approx(31.51, abs=0.005)
    accepted(make_run(link=link, measurements=(), curves=(), locking=()))


def test_a_row_without_trials_keeps_its_intervals() -> None:
    accepted(with_row(replace(of_summary(rule="median-lrv-0"), trials=())))


def test_a_changed_file_is_refused_where_it_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    run = make_run()
    run.save(path)
    assert Run.load(path) == run
    text = path.read_text()
    changed = text.replace(f'"nbytes": {16 << 20}', f'"nbytes": {17 << 20}', 1)
    assert changed != text
    path.write_text(changed)
    with pytest.raises(DocumentError, match=r"run\.json' was changed after pyxfer wrote it"):
        Run.load(path)


def test_every_committed_run_agrees_with_itself() -> None:
    kinds = {"ceiling", "frameworks", "explain"}
    documents = {path: msgspec.json.decode(gzip.decompress(path.read_bytes())) for path in RESULTS.glob("*.json.gz")}
    runs = [Run.load(path) for path, document in documents.items() if document.get("kind") in kinds]
    assert len(runs) > 10


HOST, FLEET = make_host(), make_fleet()
CELL, PEAK = HOST.cells[0], "cells[0].peak"


@pytest.mark.parametrize(
    ("found", "fields"),
    [
        (host_problems(HOST), []),
        (fleet_problems(FLEET), []),
        (host_problems(replace(HOST, cells=(replace(CELL, samples=(1.0,)),))), ["cells[0].value"]),
        (host_problems(replace(HOST, cells=(CELL, CELL))), ["cells"]),
    ],
    ids=["host", "fleet", "samples", "twice"],
)
def test_limits_of_hosts_and_fleets(found: checks.Problems, fields: list[str]) -> None:
    assert [field for field, _ in found][:1] == fields


@pytest.mark.parametrize(("peak", "fields"), [(0.5, []), (0.0, [PEAK]), (-1.0, [PEAK]), (math.inf, [PEAK])])
def test_the_peak_of_a_host_is_above_zero_and_finite(peak: float, fields: list[str]) -> None:
    found = host_problems(replace(HOST, cells=(replace(CELL, peak=Fact(peak)),)))
    assert [field for field, _ in found][:1] == fields


def test_a_loss_of_everything_is_no_setting_of_a_fleet() -> None:
    with pytest.raises(DocumentError, match=r"at `\$\.settings\.least_loss`"):
        codec.decode(Fleet, codec.encode(replace(FLEET, settings=replace(FLEET.settings, least_loss=1.0))))


# --- links: their methods and figures --------------------------------------------------------------------------------


LINKS = make_links()


def test_rows_are_found_by_their_names() -> None:
    assert LINKS.pair(0, 1).gbps == pytest.approx(396.1, rel=1e-3)
    assert LINKS.pair(1, 0, access="read", engine="sm").gbps == pytest.approx(370.0, rel=1e-3)
    together = LINKS.together("both")
    assert together.gbps == pytest.approx(2 * (29.7 + 51.5), rel=1e-3)
    assert together.sum_alone_gbps.value == pytest.approx(2 * (55.5 + 55.4), rel=1e-3)
    assert together.slowest_gbps.value == pytest.approx(29.7, rel=1e-3)
    assert together.least_overlap == 0.972
    assert LINKS.latency("host").ns == pytest.approx(1181, rel=1e-3)
    assert LINKS.latency("host", device=1, load=1.0).ns == pytest.approx(2362, rel=1e-3)
    assert LINKS.latency("peer").target == 1
    assert LINKS.latency("self").target == 0
    assert LINKS.interference.keep(0, 1, "d2h") == pytest.approx(1.0)
    assert LINKS.interference.keep(0, 7) is None


def test_missing_rows_are_named() -> None:
    bare = make_links(groups=("local",))
    for ask in (
        lambda: bare.pair(0, 1),
        lambda: bare.together("h2d"),
        lambda: bare.latency("host"),
        lambda: bare.interference,
        lambda: LINKS.pair(0, 0),
    ):
        with pytest.raises(UsageError):
            ask()
    with pytest.raises(UsageError, match="0 to 1, 1 to 0"):
        LINKS.pair(3, 4)


def _index(group: str, case: str, engine: str = "ce") -> int:
    return next(i for i, row in enumerate(LINKS.traffics) if (row.group, row.case, row.engine) == (group, case, engine))


BOTH, PAIR = _index("together", "both"), _index("pairs", "read")
CHANGES: list[tuple[tuple[str | int, ...], Any]] = [
    (("traffics", BOTH, "total", "value", "gbps"), 221.8),
    (("traffics", BOTH, "sum_alone_gbps", "value"), 200.0),
    (("traffics", BOTH, "flows", 0, "alone_share", "value", "value"), 0.9),
    (("traffics", BOTH, "trials", 0, "nbytes"), [1.0]),
    (("traffics", PAIR, "flows", 0, "verified", "value"), False),
    (("sharing", "keeps", 0, "share", "value", "value"), 0.5),
    (("sharing", "groups", "value"), [{"direction": "h2d", "devices": [0, 1], "keeps": 0.5, "tree": "hidden"}]),
    (
        ("sharing", "slow"),
        {"value": [{"case": "h2d", "source": -1, "destination": 0, "gbps": 9.0, "usual_gbps": 8.0}], "reason": None},
    ),
    (("parameters", "precision"), 0),
]


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_a_figure_that_was_changed_is_found(path: tuple[str | int, ...], value: Any) -> None:
    document: Any = msgspec.json.decode(codec.encode(LINKS))
    inside = document
    for part in path[:-1]:
        inside = inside[part]
    inside[path[-1]] = value
    with pytest.raises(DocumentError, match=r"measure again|not a pyxfer"):
        codec.decode(Links, codec.seal(msgspec.json.encode(document)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: LINKS,
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
    number = next(i for i, row in enumerate(LINKS.latencies) if row.p99.value is not None)
    row = LINKS.latencies[number]
    few = msgspec.structs.replace(row.trials[0], launches=40, p99_ns=None)
    row = msgspec.structs.replace(row, trials=(few, *row.trials[1:]), p99=unknown("too few launches in a trial"))
    run = msgspec.structs.replace(LINKS, latencies=(*LINKS.latencies[:number], row, *LINKS.latencies[number + 1 :]))
    assert codec.decode(Links, codec.encode(run)) == run


# --- hostile content -------------------------------------------------------------------------------------------------


ENCODED = codec.encode(make_run())


def attempt(data: bytes) -> Run | str:
    try:
        return codec.decode(Run, data, "'run.json'")
    except DocumentError as error:
        return str(error)


@given(st.binary() | st.text().map(str.encode))
@example(b'"\\ud800"')
@example(b'{"schema_version": 123456789012345678901234567890}')
def test_any_bytes_are_a_run_or_a_document_error(data: bytes) -> None:
    assert str(attempt(data)).startswith("'run.json'")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(json.loads(ENCODED))), JSON)
def test_any_json_in_any_field_is_a_run_or_a_document_error(field: str, value: object) -> None:
    outcome = attempt(codec.seal(json.dumps({**json.loads(ENCODED), field: value}).encode()))
    if isinstance(outcome, Run):
        assert codec.decode(Run, codec.encode(outcome)) == outcome
    else:
        assert outcome.startswith("'run.json'")


@given(st.integers(0, len(ENCODED) - 1), st.integers(0, 255))
def test_one_damaged_byte_is_a_run_or_a_document_error(position: int, byte: int) -> None:
    damaged = bytearray(ENCODED)
    damaged[position] = byte
    outcome = attempt(bytes(damaged))
    assert isinstance(outcome, Run) or outcome.startswith("'run.json'")


# --- impossible figures ----------------------------------------------------------------------------------------------

EXPLAINED = json.loads(codec.encode(make_explain_run()))


def forged(name: str, **fields: Any) -> bytes:
    """An explain run with altered fields in the `dma` or `breakdown` of the explained row."""
    document = json.loads(json.dumps(EXPLAINED))
    (row,) = [row for row in document["measurements"] if row["route"] == document["parameters"]["explained"]]
    row[name]["value"].update(fields)
    return codec.seal(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("breakdown", {"elapsed_s": 1.0}, "the parts of a breakdown sum to its elapsed_s; 0.0369016 s is not 1 s"),
        ("breakdown", {"parts": []}, "the parts of a breakdown sum to its elapsed_s; 0 s is not"),
        ("breakdown", {"parts": [{"name": "gaps", "seconds": -1.0}]}, ".breakdown.value.parts[0].seconds`"),
        ("breakdown", {"trials": 0}, ".breakdown.value.trials`"),
        ("breakdown", {"left_out": -1}, ".breakdown.value.left_out`"),
        ("breakdown", {"faults": -1.0}, ".breakdown.value.faults`"),
        ("breakdown", {"wall_s": -1.0}, ".breakdown.value.wall_s`"),
        ("dma", {"nbytes": -1}, ".dma.value.nbytes`"),
        ("dma", {"copies": -1.0}, ".dma.value.copies`"),
        ("dma", {"trials": 0}, ".dma.value.trials`"),
    ],
)
def test_impossible_figures_of_traced_trials_are_refused(name: str, fields: dict[str, Any], words: str) -> None:
    assert words in str(attempt(forged(name, **fields)))


def test_an_explain_run_without_measurements_is_loaded() -> None:
    run = make_explain_run(measurements=(), ended="interrupted")
    assert codec.decode(Run, codec.encode(run)) == run


# --- watches ---------------------------------------------------------------------------------------------------------


WATCHED = json.loads(codec.encode(make_watched()))
STALLED = json.loads(codec.encode(make_stalled()))
NUMBERS = list(numbers(STALLED))


@pytest.mark.parametrize(
    ("document", "path", "value"),
    [
        *((STALLED, ("steps", name), -1) for name in ("watched", "skipped", "failed", "unclosed")),
        *((STALLED, ("steps", "slow", name), -1.0) for name in ("more_s", "longest_s")),
        *[(STALLED, ("steps", "slow", "count"), 0), (STALLED, ("steps", "slow", "share"), 1.5)],
        *((WATCHED, (*place, "host_s"), -0.001) for place in (("parts",), ("steps", "each", 0, "parts"))),
        *[(WATCHED, ("parts", "period_s"), -1.0), (WATCHED, ("window_s",), -1)],
        *((WATCHED, ("ranges", 0, name), -1) for name in ("count", "seconds", "share", "busy_s")),
        *((WATCHED, ("ranges", 0, name), -1) for name in ("h2d_bytes", "d2h_bytes")),
    ],
)
def test_an_impossible_figure_of_a_watch_is_refused(document: Any, path: tuple[str | int, ...], value: float) -> None:
    with pytest.raises(DocumentError, match=rf"'watch.json' is not a pyxfer watch: .*{path[-1]}`"):
        codec.decode(Watched, with_number(document, json.dumps(path), value), "'watch.json'")


@given(st.sampled_from(NUMBERS), st.sampled_from([0, -1, 5e-324, 0.5, 1e308, -1e308, 10**19]))
def test_a_watch_with_any_number_is_refused_or_printed(place: str, number: float) -> None:
    data = with_number(STALLED, place, number)
    try:
        watched = codec.decode(Watched, data)
    except DocumentError:
        return
    assert watched.text(80)
    assert watched.to_markdown()
