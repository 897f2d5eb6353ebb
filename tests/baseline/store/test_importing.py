"""Importing a baseline from a file, also an edited one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from baseline.link_processes import make_process, make_processes
from baseline.store.making import make_baseline, run_at
from link_samples import link_device, make_links
from msgspec.structs import replace
from samples import make_device, make_environment, make_run

from pyxfer import DocumentError, UsageError
from pyxfer._baseline import check
from pyxfer._baseline.fingerprints import fingerprint_of, identity
from pyxfer._baseline.inputs import check_import, sample_of
from pyxfer._baseline.store import Store
from pyxfer._document import codec
from pyxfer._document.baselines import Baseline
from pyxfer._document.machines import Fact


def changed(*place: str | int, to: Any, of: Baseline | None = None) -> bytes:
    """An export with one changed value, by default of a baseline of runs."""
    document = json.loads(codec.encode(of or make_baseline()))
    inside = document
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = to
    return codec.seal(json.dumps(document).encode())


def without_times(**changes: Any) -> bytes:
    """An export with changed summaries of all measurements, or without measurements."""
    document = json.loads(codec.encode(make_baseline()))
    for run in document["runs"]:
        for measurement in run["measurements"]:
            measurement["summary"].update(changes)
        run["measurements"] = run["measurements"] if changes else []
    return codec.seal(json.dumps(document).encode())


def imported(data: bytes) -> Baseline:
    baseline = codec.decode(Baseline, data, "'b.json'")
    check_import(baseline, "'b.json'")
    return baseline


def test_an_exported_baseline_can_be_imported(store: Store, tmp_path: Path) -> None:
    baseline = make_baseline(name="two\nlines", labels={"\0": "<b>"})
    baseline.save(tmp_path / "b.json")
    read = Baseline.load(tmp_path / "b.json")
    check_import(read, "'b.json'")
    assert read == baseline
    added = store.add_baseline(read)
    assert store.same_baseline(baseline) == added


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (b"{}", "has no schema_version"),
        (changed("schema_version", to=99), "schema_version 99"),
        (changed("kind", to="watch"), "is a watch, not a baseline"),
        (changed("runs", to=[]), "runs are 0"),
        (changed("runs", 1, to=3), r"runs\[1\] of 'b.json' has no schema_version"),
        (changed("runs", 1, "schema_version", to=99), r"runs\[1\] of 'b.json' has schema_version 99"),
        (changed("runs", 1, "link", to=None), r"runs\[1\] of 'b.json' is not a pyxfer run"),
        (changed("name", to=""), "has 1 to 200 characters"),
        (changed("labels", to={str(n): "" for n in range(65)}), "up to 64 labels"),
        (changed("made_at", to="yesterday"), r"\$\.made_at"),
        (
            changed("runs", 0, "environment", "taken_at", to="2026-02-30T00:00:00Z"),
            "'2026-02-30T00:00:00Z' is not a time",
        ),
        (changed("runs", 0, "measurements", 0, "nbytes", to=10**400), "has a number beyond all"),
        (changed("fingerprint", "host", to="node-9"), r"fingerprint\.host"),
        (changed("fingerprint", "link_now", "value", to="PCIe 6.0 x16"), r"fingerprint\.link_now"),
        (changed("runs", 2, "environment", "host", to="node-9"), "names another machine"),
        (without_times(), "has no valid time of any cell"),
        (without_times(median_s=-1.0), r"measurements\[0\]\.summary"),
        (
            changed("runs", 0, "measurements", 0, "rate", "value", "gbps", to=-1e308),
            r"measurements\[0\]\.rate\.(value\.)?gbps",
        ),
    ],
)
def test_an_edited_export_is_refused_with_the_reason(data: bytes, sentence: str) -> None:
    with pytest.raises(DocumentError, match=sentence) as caught:
        imported(data)
    assert "'b.json'" in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("labels",), {"'; DROP TABLE pyxfer_runs; --": "\0\x1b[31m"}),
        (("name",), "'; DROP TABLE pyxfer_baselines; --"),
        (("runs", 0, "measurements", 0, "route"), "raw.x'); --"),
        (("runs", 0, "measurements", 0, "worker"), "\\0000"),
        (("runs", 0, "measurements", 0, "batch"), 2**63 - 1),
        (("runs", 0, "environment", "taken_at"), "0001-01-01T00:00:00+00:00"),
        (("runs", 0, "environment", "taken_at"), "9999-12-31T23:59:59+00:00"),
    ],
    ids=str,
)
def test_hostile_or_extreme_values_are_stored_as_data(store: Store, place: tuple[str | int, ...], value: Any) -> None:
    baseline = imported(changed(*place, to=value))
    added = store.add_baseline(baseline)
    assert store.baseline_of_id(added) == baseline
    assert len(store.baselines()) == 1
    assert all(group.points for group in store.history().groups)


@pytest.mark.parametrize("change", [{"name": "\udcff"}, {"labels": {"slot": "\udcff"}}])
def test_text_that_is_not_utf_8_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DocumentError, match=r"'b.json' is not what .* is not text"):
        check_import(replace(make_baseline(), **change), "'b.json'")


def test_runs_of_one_machine_may_differ_in_time_and_cuda_runtime() -> None:
    newer = make_environment(taken_at="2026-01-02T00:00:00+00:00", cuda_runtime="13.0")
    baseline = make_baseline(runs=(run_at(1), run_at(environment=newer), run_at(3)))
    check_import(baseline, "'b.json'")
    check_import(replace(baseline, labels={"a": "b"}), "'b.json'")


# --- links -----------------------------------------------------------------------------------------------------------


MADE_AT = "2025-11-21T09:00:00+00:00"
PAIR = "links.pairs.write.ce:gpu0-gpu1:512MiB"


def baseline() -> Baseline:
    return check.make_baseline("links", {"slot": "3"}, make_processes(), MADE_AT)


def test_a_baseline_of_links_comes_back_as_it_was(store: Store) -> None:
    added = store.add_baseline(baseline())
    assert store.baseline_of_id(added) == baseline()
    assert store.baseline("links", identity(baseline().fingerprint)) == baseline()
    assert store.add_baseline(baseline()) == added
    (kept,) = store.baselines()
    assert (kept.fingerprint.device, kept.fingerprint.gpus) == ("2 x NVIDIA H200", {0: "GPU-0", 1: "GPU-1"})


def test_links_of_one_gpu_are_another_machine_than_its_link() -> None:
    links = make_links(1)
    run = make_run(device=links.devices[0].device, link=links.devices[0].link, environment=links.environment)
    assert identity(fingerprint_of(run)) != identity(fingerprint_of(links))
    assert fingerprint_of(run) == msgspec.structs.replace(fingerprint_of(links), gpus={})


def test_renumbered_gpus_are_another_machine_and_the_refusal_says_so(store: Store) -> None:
    store.add_baseline(baseline())
    devices = tuple(link_device(make_device(index=n, uuid=Fact(f"GPU-{1 - n}"))) for n in (0, 1))
    with pytest.raises(UsageError, match="the list of GPUs is '0: GPU-0, 1: GPU-1' and not '0: GPU-1, 1: GPU-0'"):
        check.find_baseline(store, "links", fingerprint_of(make_links(2, devices=devices)))


def test_stored_links_are_a_side_of_a_comparison(store: Store, store_url: str) -> None:
    run_id = store.add_run(make_process(0, 1))
    added = store.add_baseline(baseline())
    assert sample_of(run_id, "A", store_url).runs == (make_process(0, 1),)
    assert sample_of(added, "A", store_url).runs == make_processes()


def test_a_cell_of_links_has_a_history(store: Store) -> None:
    for number in range(3):
        store.add_run(make_process(number, 1))
    (group,) = store.history(PAIR).groups
    assert (group.cell_text, len(group.points), group.device) == (PAIR, 3, "2 x NVIDIA H200")
    assert group.gpu.value == "GPU-0, GPU-1"
    assert group.median_gbps == pytest.approx(396.1, rel=0.02)
    assert {each.cell_text for each in store.history("links.pairs.write.ce").groups} == {
        f"links.pairs.write.ce:{ends}:512MiB" for ends in ("gpu0-gpu1", "gpu1-gpu0")
    }


def test_without_a_cell_the_history_is_of_the_copies_of_each_gpu(store: Store) -> None:
    store.add_run(make_process(0, 1))
    assert {group.cell_text for group in store.history().groups} == {
        f"links.host.{ends}:128MiB"
        for ends in ("h2d.ce:host-gpu0", "h2d.ce:host-gpu1", "d2h.ce:gpu0-host", "d2h.ce:gpu1-host")
    }


# --- files -----------------------------------------------------------------------------------------------------------


def test_an_exported_baseline_of_links_can_be_imported(store: Store, tmp_path: Path) -> None:
    baseline().save(tmp_path / "b.json.gz")
    read = Baseline.load(tmp_path / "b.json.gz")
    check_import(read, "'b.json.gz'")
    assert read == baseline()
    assert store.same_baseline(read) is None
    assert store.add_baseline(read) == store.same_baseline(read)


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (("links", 1, "traffics", 0, "total", "value", "gbps"), 1.0, r"links\[1\]\.traffics\[0\]\.total\.value\.gbps"),
        (("links", 0, "schema_version"), 99, "upgrade pyxfer"),
        (("links",), [], "runs are 0"),
        (("fingerprint", "gpus"), {"0": "GPU-0"}, r"fingerprint\.gpus"),
        (("runs",), [json.loads(codec.encode(make_run()))], "of one link or of all links"),
    ],
)
def test_an_edited_file_is_refused(place: tuple[str | int, ...], value: Any, sentence: str) -> None:
    with pytest.raises(DocumentError, match=sentence):
        check_import(codec.decode(Baseline, changed(*place, to=value, of=baseline()), "'b.json'"), "'b.json'")
