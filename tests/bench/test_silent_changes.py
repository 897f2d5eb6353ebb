"""Edited documents are refused, and resealed ones too, but for the fields that nothing else in the document knows."""

from __future__ import annotations

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
from pyxfer._fleet import small_cohorts
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


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "SAME"),
        (("cells", 0, "verdict"), "FAST"),
        (("cells", 0, "ratio", "value"), -1.0),
        (("cells", 0, "ratio", "value"), 1.5),
        (("cells", 0, "low", "value"), 0.5),
        (("cells", 0, "a_gbps", "value"), 90.0),
        (("overall_low", "value"), 0.5),
    ],
)
def test_a_resealed_figure_of_a_comparison_is_refused(path: tuple[str | int, ...], value: Any) -> None:
    with pytest.raises(DocumentError, match="changed after pyxfer wrote it"):
        codec.decode(type(COMPARISON), changed(COMPARISON, *path, value=value))


def test_a_resealed_run_is_believed_only_in_what_nothing_else_knows() -> None:
    found, tried = silent_changes.silent(codec.encode(RUN), 1, codec.seal)
    assert tried > 200
    assert {change.name for change in found} <= {
        *("device.mig.value", "device.vgpu.value", "device.confidential.value", "device.index"),
        *("link.device_most.value.generation", "link.system_most.value.generation"),
        *("duration_s", "ended", "parameters.budget_s", "parameters.precision", "parameters.seed"),
    }


@pytest.mark.parametrize("watched", [make_watched(), make_unseen()], ids=["records", "no records"])
def test_a_resealed_watch_is_believed_only_in_how_it_ended(watched: Watched) -> None:
    found, tried = silent_changes.silent(codec.encode(watched), 1, codec.seal)
    assert tried > 200
    names = {change.name for change in found}
    assert {name for name in names if silent_changes.reason_of(name) != silent_changes.FACT} == {"ended"}


def test_at_most_ten_figures_and_words_have_a_reason() -> None:
    assert len(silent_changes.REASONS) <= 10


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
    path = tmp_path / "links.json"
    make_links(1, groups=("host",)).save(path)
    assert silent_changes.main([str(path), "--each", "1"]) == 0
    monkeypatch.setattr(silent_changes, "FACTS", ())
    assert silent_changes.main([str(path), "--each", "20"]) == 1


def test_a_resealed_number_that_cannot_be_is_refused_with_its_path() -> None:
    watched = make_watched()
    with pytest.raises(DocumentError, match=r"\$\.device\.index"):
        codec.decode(type(watched), changed(watched, "device", "index", value=10**15))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("memory",), "pageable"),
        (("mode",), "memcpy"),
        (("variant",), "fresh"),
        (("bracket",), "stream"),
        (("direction",), "d2h"),
    ],
)
def test_a_resealed_word_of_a_row_is_not_that_of_its_route(path: tuple[str, ...], value: str) -> None:
    run = make_run(measurements=(make_measurement(),), parameters=make_parameters(directions=("h2d",)))
    with pytest.raises(DocumentError, match=rf"measurements\[0\]\.{path[0]}"):
        codec.decode(type(run), changed(run, "measurements", 0, *path, value=value))


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


@pytest.mark.parametrize(
    ("name", "value"), [("driver_major", 1), ("link_kind", "c2c"), ("mig", True), ("host", "other")]
)
def test_a_resealed_fingerprint_is_that_of_a_run(name: str, value: Any) -> None:
    baseline = Baseline("monday", fingerprint_of(RUN), "2026-01-04T00:00:00+00:00", {}, (RUN,))
    path = (
        ("fingerprint", name)
        if isinstance(getattr(baseline.fingerprint, name), str)
        else ("fingerprint", name, "value")
    )
    with pytest.raises(DocumentError, match=rf"fingerprint\.{name}"):
        codec.decode(Baseline, changed(baseline, *path, value=value))


@pytest.mark.parametrize(
    ("path", "value"), [(("judged_by",), "peak"), (("judged_by",), "none"), (("usual", "value"), 60.0)]
)
def test_few_hosts_are_held_against_the_known_hosts_of_the_package(path: tuple[str, ...], value: Any) -> None:
    fleet = judged([make_host("a", {"h2d:gpu0:pinned:256MiB": 55.0})])
    with pytest.raises(DocumentError, match=rf"cohorts\[0\]\.cells\[0\]\.{path[0]}"):
        codec.decode(Fleet, changed(fleet, "cohorts", 0, "cells", 0, *path, value=value))


def test_few_hosts_beside_a_known_host_that_this_package_lacks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = codec.encode(judged([make_host("a", {"h2d:gpu0:pinned:256MiB": 55.0})]))
    monkeypatch.setattr(small_cohorts, "references", tuple)
    with pytest.raises(DocumentError, match="a known host that this pyxfer does not have"):
        codec.decode(Fleet, data)


@pytest.mark.parametrize("path", [("judged_by",), ("usual", "value"), ("peak", "value")])
def test_few_hosts_are_held_against_the_peak_in_the_fleet(path: tuple[str, ...]) -> None:
    cell = make_cell("h2d:gpu0:pinned:256MiB", 26.0, 28.0)
    fleet = judged([make_host("a", {}, cells=(cell,), facts={"link capability": "PCIe 4.0 x16"})])
    value: Any = "none" if path == ("judged_by",) else 40.0
    with pytest.raises(DocumentError, match=r"cohorts\[0\]\.(reason|cells\[0\])"):
        codec.decode(Fleet, changed(fleet, "cohorts", 0, "cells", 0, *path, value=value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("measurement", "direction"), "d2h"),
        (("measurement", "ceiling_share", "value", "value"), 0.5),
        (("ceiling", "value", "trials", 4, "elapsed_s"), 1.0),
        (("ceiling", "value", "rate", "value", "gbps"), 3.0),
    ],
)
def test_a_resealed_figure_of_a_test_is_that_of_its_ceiling(path: tuple[str | int, ...], value: Any) -> None:
    document = session()
    with pytest.raises(DocumentError, match=r"tests\[0\]\."):
        codec.decode(type(document), changed(document, "tests", 0, *path, value=value))


def test_a_resealed_cell_has_no_assumed_spread_beside_several_processes() -> None:
    with pytest.raises(DocumentError, match=r"cells\[0\]\.assumed"):
        codec.decode(type(COMPARISON), changed(COMPARISON, "cells", 0, "assumed", value=True))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("traffics", 0, "group"), "together"),
        (("latencies", 0, "target"), 0),
        (("latencies", 0, "hops"), 7),
        (("devices", 0, "nvlinks", "value"), 9),
        (("ended",), "failed"),
    ],
)
def test_a_resealed_row_of_links_is_as_its_settings_ask(path: tuple[str | int, ...], value: Any) -> None:
    run = make_links(2, groups=("host", "latency"))
    with pytest.raises(DocumentError, match="changed after pyxfer wrote it"):
        codec.decode(type(run), changed(run, *path, value=value))


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
