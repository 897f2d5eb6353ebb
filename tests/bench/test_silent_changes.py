"""Edited documents are refused, and resealed ones too, but for the fields that nothing else in the document knows."""

from __future__ import annotations

import contextlib
import functools
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import save_again
import silent_changes
from baseline_samples import make_sample, slow_pinned
from explain_samples import make_dma
from fleet_samples import judged, make_cell, make_host, make_hosts
from link_samples import make_links
from marks import slow
from samples import make_measurement, make_parameters, make_run
from watch_samples import make_unseen, make_watched
from xfer_samples import session

from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.fingerprints import fingerprint_of
from pyxfer._document import codec
from pyxfer._document.baselines import Baseline
from pyxfer._document.fleets import Fleet
from pyxfer._document.machines import Fact
from pyxfer._document.watches import Watched
from pyxfer._fleet import cohorts
from pyxfer._trace.findings import Expected, inflated
from pyxfer.errors import DocumentError

COMPARISON = compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.3)))
FLEET = judged(make_hosts(8, {7: 0.06}))
RUN = make_run(measurements=(make_measurement(),), parameters=make_parameters(directions=("h2d",)))
DOCUMENTS: dict[str, Any] = {
    "run": RUN,
    "links": make_links(1, groups=("local",)),
    "fleet": FLEET,
    "comparison": COMPARISON,
}


def changed(document: Any, *path: str | int, value: Any) -> bytes:
    """The document with another value at this place, and with a seal of that."""
    return codec.seal(
        msgspec.json.encode(silent_changes.replaced(msgspec.json.decode(codec.encode(document)), path, value))
    )


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_no_edited_document_is_believed(document: Any) -> None:
    data = codec.encode(document)
    parsed = msgspec.json.decode(data)
    for number, leaf in enumerate(silent_changes.leaves(parsed)):
        if number % 5 or leaf.path == (codec.DIGEST,):
            continue
        for _, value in silent_changes.mutations(leaf, ()):
            if value != leaf.value:
                edited = msgspec.json.encode(silent_changes.replaced(parsed, leaf.path, value))
                with pytest.raises(DocumentError):
                    codec.decode(type(document), edited, recomputed=False)


def test_an_edited_verdict_of_a_host_is_refused_with_a_seal_as_well() -> None:
    (slow,) = [place for place, host in enumerate(FLEET.hosts) if host.verdict == "slow"]
    with pytest.raises(DocumentError, match=r"hosts\[0\]\.verdict is 'slow', but its other fields give 'fine'"):
        codec.decode(Fleet, changed(FLEET, "hosts", 0, "verdict", value="slow"))
    with pytest.raises(DocumentError, match=rf"hosts\[{slow}\]\.verdict"):
        codec.decode(Fleet, changed(FLEET, "hosts", slow, "verdict", value="fine"))


# A machine, its state and the settings of a run; what follows from them is elsewhere.
GIVEN = re.compile(r"(device|devices\[\]|environment|environment_after|link|placement|parameters|settings)\.")
BASELINE = Baseline("monday", fingerprint_of(RUN), "2026-01-04T00:00:00+00:00", {}, (RUN,))
FEW = judged([make_host("a", {"h2d:gpu0:pinned:256MiB": 55.0})])
OF_PEAK = {"cells": (make_cell("h2d:gpu0:pinned:256MiB", 26.0, 28.0),), "facts": {"link capability": "PCIe 4.0 x16"}}
OF_RUN = {"measurements[].first_s.value", "measurements[].trials[].copies", "measurements[].trials[].round"}
OF_CELL = {f"cohorts[].cells[].cell.{name}" for name in ("destination[]", "nbytes")}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("document", "known"),
    [
        (RUN, OF_RUN),
        (BASELINE, OF_RUN),
        (COMPARISON, {f"cells[].{name}" for name in ("a_processes", "b_processes", "confirmed", "least_loss")}),
        (FLEET, {f"hosts[].{name}" for name in ("again[][]", "errors[]", "named", "state")}),
        (FEW, {*OF_CELL, "hosts[].named", "hosts[].state", "hosts[].values[]"}),
        (judged([make_host("a", {}, **OF_PEAK)]), {*OF_CELL, "hosts[].named", "hosts[].state", "hosts[].values[]"}),
        (make_host(), {f"cells[].{name}" for name in ("cell.nbytes", "high", "low")}),
        (
            session(),
            {f"tests[].{name}" for name in ("budget_s", "precision", "outcome", "expected.min_of_ceiling")}
            | {f"tests[].measurement.{name}" for name in ("bracket", "memory", "first_s.value")}
            | {"tests[].ceiling.value.first_s.value"},
        ),
        slow(
            make_links(),
            {f"latencies[].{name}" for name in ("footprint_bytes", "multiprocessor_ns[][]")}
            | {f"latencies[].trials[].{name}" for name in ("launches", "load_gbps", "round")}
            | {f"peers[].{name}" for name in ("access.value", "kind", "nvlinks.value")}
            | {f"traffics[].counted[].{name}" for name in ("counted.value", "counter", "device", "sent")}
            | {f"traffics[].flows[].alone_share.value.{name}" for name in ("high", "low", "value")}
            | {"traffics[].trials[].overlap", "traffics[].trials[].round", "small[].copies", "small[].caller_copies"},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_resealed_document_is_believed_only_in_what_nothing_else_knows(document: Any, known: set[str]) -> None:
    parsed = msgspec.json.decode(codec.encode(document))
    words = silent_changes.words_of(codec.schema(type(document)))
    first = {leaf.name: leaf for leaf in reversed([*silent_changes.leaves(parsed)])}
    believed = set()
    for leaf in first.values():
        for _, value in silent_changes.mutations(leaf, words):
            if value != leaf.value and leaf.name != codec.DIGEST:
                with contextlib.suppress(DocumentError):
                    codec.decode(type(document), changed(document, *leaf.path, value=value))
                    believed.add(leaf.name.removeprefix("runs[].").removeprefix("places[]."))
    assert {name for name in believed if not GIVEN.match(name)} - {"duration_s", "ended", "tolerance"} <= known


@pytest.mark.parametrize("watched", [make_watched(), slow(make_unseen())], ids=["records", "no records"])
def test_a_resealed_watch_is_believed_only_in_how_it_ended(watched: Watched) -> None:
    found, tried = silent_changes.silent(codec.encode(watched), 1, codec.seal)
    assert tried > 200
    names = {change.name for change in found}
    assert {name for name in names if silent_changes.reason_of(name) != silent_changes.FACT} == {"ended"}


def test_at_most_fifteen_figures_and_words_have_a_reason() -> None:
    assert len(silent_changes.REASONS) <= 15


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("device.mig.value", True),
        ("runs[].parameters.seed", True),
        ("links.devices[].traits[]", True),
        ("workers[].ended", False),
        ("runs[].measurements[].dma.value.seconds.value", False),
    ],
)
def test_a_field_is_a_fact_or_has_a_reason_of_its_own(name: str, is_known: bool) -> None:
    reason = silent_changes.reason_of(name)
    assert reason is not None
    assert (reason == silent_changes.FACT) is is_known


@pytest.mark.parametrize("name", ["measurements[].rate.value.gbps", "hosts[].verdict", "verdict.share.value"])
def test_figures_and_verdicts_that_follow_have_no_reason(name: str) -> None:
    assert silent_changes.reason_of(name) is None


def test_a_silent_field_without_a_reason_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    RUN.save(path)
    monkeypatch.setattr(silent_changes, "silent", functools.cache(silent_changes.silent))  # the second finds the same
    assert silent_changes.main([str(path), "--each", "1"]) == 0
    monkeypatch.setattr(silent_changes, "FACTS", ())
    assert silent_changes.main([str(path), "--each", "1"]) == 1


def test_a_resealed_number_that_cannot_be_is_refused_with_its_path() -> None:
    watched = make_watched()
    with pytest.raises(DocumentError, match=r"\$\.device\.index"):
        codec.decode(type(watched), changed(watched, "device", "index", value=10**15))


def test_a_row_is_there_once() -> None:
    run = make_run(measurements=(make_measurement(), make_measurement(side="d2h")))
    with pytest.raises(DocumentError, match=r"measurements\[1\]"):
        codec.decode(type(run), changed(run, "measurements", 1, "direction", value="h2d"))


def test_resealed_bytes_that_crossed_the_link_are_those_of_the_remark() -> None:
    row = make_measurement()
    dma = make_dma(nbytes=4 * row.nbytes)
    (said,) = inflated(dma, Expected(row.nbytes))
    run = make_run(measurements=(msgspec.structs.replace(row, dma=Fact(dma), remarks=(said,)),))
    assert codec.decode(type(run), codec.encode(run)) == run
    with pytest.raises(DocumentError, match=r"measurements\[0\]\.remarks\[0\]\.text"):
        codec.decode(type(run), changed(run, "measurements", 0, "dma", "value", "nbytes", value=5 * row.nbytes))


def test_few_hosts_beside_a_known_host_that_this_package_lacks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = codec.encode(judged([make_host("a", {"h2d:gpu0:pinned:256MiB": 55.0})]))
    monkeypatch.setattr(cohorts, "references", tuple)
    with pytest.raises(DocumentError, match="a known host that this pyxfer does not have"):
        codec.decode(Fleet, data)


def test_other_spaces_orders_and_kinds_of_numbers_keep_the_seal() -> None:
    run = make_watched()
    parsed = msgspec.json.decode(codec.encode(run))
    backwards = dict(reversed(parsed.items()))
    backwards["window_s"] = parsed["window_s"]
    assert codec.decode(type(run), msgspec.json.format(msgspec.json.encode(backwards), indent=7)) == run
    whole = make_run(duration_s=8.0)
    data = codec.encode(whole)
    assert b'"duration_s": 8.0' in data
    assert codec.decode(type(whole), data.replace(b'"duration_s": 8.0', b'"duration_s": 8')) == whole
    with pytest.raises(DocumentError, match="digest"):
        codec.decode(type(whole), data.replace(b'"duration_s": 8.0', b'"duration_s": 9'))


def test_a_document_without_a_seal_is_refused_and_saved_anew() -> None:
    parsed = msgspec.json.decode(codec.encode(RUN))
    del parsed[codec.DIGEST]
    parsed["measurements"][0]["summary"]["low_s"] = 1e-9
    bare = msgspec.json.encode(parsed)
    with pytest.raises(DocumentError, match="no digest"):
        codec.decode(type(RUN), bare)
    assert save_again.saved_again(bare, "run.json") == codec.encode(RUN)
    assert save_again.saved_again(b'{"schema_version": 1, "trials": []}', "other.json") is None
