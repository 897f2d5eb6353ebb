"""Saving, reading and removing runs and baselines on SQLite and on PostgreSQL, also from an edited file."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from baseline.link_processes import make_process, make_processes
from baseline.store.making import make_baseline, run_at
from doctor.cases import copy, h200
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from link_samples import link_device, make_links
from samples import FORMULA, MARKUP, SCRIPT, make_device, make_run

from pyxfer import DocumentError, StoreError, UsageError
from pyxfer._baseline import check, store_rows
from pyxfer._baseline.fingerprints import fingerprint_of, identity
from pyxfer._baseline.store import Store
from pyxfer._document import codec
from pyxfer._document.baselines import Baseline
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Run

many = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
any_character = st.characters(exclude_categories=["Cs"], exclude_characters="\0")  # PostgreSQL stores no null character
any_text = st.text(any_character, min_size=1, max_size=60)


def test_a_run_comes_back_as_it_was_stored(store: Store) -> None:
    run_id = store.add_run(make_run(), {"slot": "3"})
    stored = store.run(run_id)
    assert (stored.id, stored.labels, stored.run) == (run_id, {"slot": "3"}, make_run())
    with pytest.raises(StoreError, match="has no run 'r-000000000000'"):
        store.run("r-000000000000")


def test_saving_a_run_again_stores_nothing(store: Store) -> None:
    first = store.add_run(make_run(), {"slot": "3"})
    assert store.add_run(make_run(), {"slot": "3"}) == first
    others = {store.add_run(make_run(), {"slot": "4"}), store.add_run(run_at(day=2), {"slot": "3"})}
    assert len({first, *others}) == 3


def test_a_repeated_attempt_finds_its_baseline_behind_a_newer_one(store: Store) -> None:
    row, runs = store_rows.new_baseline(make_baseline())

    def attempt() -> str:
        return store._database.write("it", lambda connection: store_rows.add_baseline(connection, row, runs))

    first = attempt()
    other = store.add_baseline(make_baseline(labels={"n": "2"}))
    assert attempt() == first
    assert [(kept.id, kept.earlier) for kept in store.baselines()] == [(other, 1)]


def test_saving_an_earlier_baseline_again_makes_it_current(store: Store) -> None:
    first, other = (store.add_baseline(make_baseline(labels={"n": n})) for n in "12")
    again = store.add_baseline(make_baseline(labels={"n": "1"}))
    assert len({first, other, again}) == 3
    assert [(kept.id, kept.earlier) for kept in store.baselines()] == [(again, 2)]


@many
@example(name=SCRIPT, labels={FORMULA: MARKUP})
@example(name="'; DROP TABLE pyxfer_runs; --", labels={"%s %(name)s :name ?": "back\\slash\\0000"})
@given(name=any_text, labels=st.dictionaries(any_text, st.text(any_character), max_size=5))
def test_any_names_and_labels_come_back_unchanged(store: Store, name: str, labels: dict[str, str]) -> None:
    baseline = make_baseline(name=name, labels=labels)
    store.add_baseline(baseline)
    found = store.baseline(name, identity(baseline.fingerprint))
    assert found is not None
    assert (found.name, found.labels) == (name, labels)


def test_the_newest_baseline_of_a_name_and_machine_is_the_current_one(store: Store) -> None:
    first, second = make_baseline(labels={"n": "1"}), make_baseline(labels={"n": "2"})
    first_id, second_id = store.add_baseline(first), store.add_baseline(second)
    assert store.baseline("default", identity(first.fingerprint)) == second
    assert [(kept.id, kept.earlier) for kept in store.baselines()] == [(second_id, 1)]
    assert store.baseline_of_id(first_id) == first


def test_machines_and_names_have_separate_baselines(store: Store) -> None:
    here, there = make_baseline(), make_baseline(host="node-8")
    store.add_baseline(here)
    store.add_baseline(there)
    store.add_baseline(make_baseline(name="old"))
    assert store.baseline("default", identity(here.fingerprint)) == here
    assert store.baseline("other", identity(here.fingerprint)) is None
    assert [(kept.fingerprint.host, kept.name) for kept in store.baselines()] == [
        ("node-7", "default"),
        ("node-7", "old"),
        ("node-8", "default"),
    ]
    assert [kept.fingerprint.host for kept in store.baselines("node-8")] == ["node-8"]


def test_a_baseline_uses_a_run_that_is_already_stored(store: Store) -> None:
    run = run_at(day=1)
    run_id = store.add_run(run)
    store.add_baseline(make_baseline(runs=(run, run_at(day=2), run_at(day=3))))
    assert store.baselines()[0].run_ids[0] == run_id


def test_removing_a_baseline_keeps_its_runs(store: Store) -> None:
    baseline = make_baseline()
    for number in "12":
        store.add_baseline(make_baseline(labels={"n": number}))
    (kept,) = store.baselines()
    assert store.remove_baseline(kept.name, kept.identity) == 2
    assert store.baseline(kept.name, kept.identity) is None
    assert store.baselines() == []
    assert store.run(kept.run_ids[0]).run == baseline.runs[0]
    with pytest.raises(StoreError, match=kept.id):
        store.baseline_of_id(kept.id)


def test_removing_a_baseline_by_id_makes_the_one_before_it_current(store: Store) -> None:
    first, second = (store.add_baseline(make_baseline(labels={"n": n})) for n in "12")
    assert store.remove_baseline_of_id(second)
    assert not store.remove_baseline_of_id(second)
    assert [kept.id for kept in store.baselines()] == [first]


def test_a_removed_baseline_can_be_saved_again(store: Store) -> None:
    baseline = make_baseline()
    store.add_baseline(baseline)
    key = identity(baseline.fingerprint)
    store.remove_baseline("default", key)
    assert store.same_baseline(baseline) is None
    store.add_baseline(baseline)
    assert store.baseline("default", key) == baseline


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({"runs": ()}, "one run or more"),
        ({"name": ""}, "1 to 200 characters"),
        ({"name": "n" * 201}, "1 to 200 characters"),
        ({"labels": {str(n): "" for n in range(65)}}, "up to 64 labels"),
        ({"labels": {"": "v"}}, "1 to 200 characters"),
        ({"labels": {"n": "v" * 2001}}, "0 to 2000 characters"),
        ({"made_at": "yesterday"}, "'yesterday' is not a time"),
        ({"name": "\udcff\udcfe"}, "The name of a baseline is not text"),
        ({"labels": {"slot": "\udcff"}}, "The value of the label 'slot' is not text"),
        ({"labels": {"slot": 3}}, "The value of the label 'slot' is a int: give text"),
    ],
)
def test_an_invalid_name_label_or_time_is_refused(store: Store, change: dict[str, object], limit: str) -> None:
    with pytest.raises(UsageError, match=limit):
        store.add_baseline(msgspec.structs.replace(make_baseline(), **change))
    assert store.baselines() == []


def test_the_largest_names_and_labels_are_kept(store: Store) -> None:
    labels = {f"{n:02}" + "\U0001f680" * 198: "\0" * 2000 for n in range(64)}
    baseline = make_baseline(name="\U0001f680" * 200, labels=labels)
    store.add_baseline(baseline)
    assert store.baseline(baseline.name, identity(baseline.fingerprint)) == baseline


def test_a_value_of_another_type_is_refused(store: Store) -> None:
    number: Any = 3
    with pytest.raises(UsageError, match="Expected a run"):
        store.add_run(number)
    with pytest.raises(UsageError, match="Expected a baseline"):
        store.add_baseline(number)


def test_a_closed_store_refuses_every_call(store: Store) -> None:
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.add_run(make_run()),
        lambda: store.add_baseline(make_baseline()),
        lambda: store.remove_baseline("default", "x"),
        store.baselines,
        store.history,
    ]
    for call in calls:
        with pytest.raises(StoreError, match="is closed: open it again"):
            call()


# --- the newest run of each GPU of a host ----------------------------------------------------------------------------

NODE = 'node "7"\n%'


def host_run(
    uuid: str | None = "GPU-1", host: str = NODE, taken_at: str = "2026-11-21T10:00:00+00:00", **fields: object
) -> Run:
    gpu: Fact[str] = unknown("host memory") if uuid is None else Fact(uuid)
    device = msgspec.structs.replace(h200().device, uuid=gpu)
    rows = {"measurements": (copy("h2d", 55.0),), **fields}
    return h200(device=device, environment={"host": host, "taken_at": taken_at}, **rows)


def newest(store: Store, *runs: Run) -> set[int]:
    """Store these runs; the positions of those that are the newest."""
    ids = [store.add_run(stored) for stored in runs]
    return {ids.index(found.id) for found in store.newest_raw_runs(NODE)}


def test_the_run_stored_last_is_the_newest_of_each_gpu(store: Store) -> None:
    assert newest(store, host_run(), host_run("GPU-2"), host_run(taken_at="2020-01-01T00:00:00+00:00")) == {1, 2}


def test_runs_of_other_hosts_and_without_a_gpu_are_left_out(store: Store) -> None:
    assert newest(store, host_run(host="node"), host_run(None)) == set()


@pytest.mark.parametrize("rows", [(), (copy("h2d", None),), (copy("h2d", 55.0, route="torch.to"),)])
def test_runs_without_raw_copies_are_left_out(store: Store, rows: tuple[object, ...]) -> None:
    assert newest(store, host_run(), host_run(measurements=rows)) == {0}


# --- baselines from a file -------------------------------------------------------------------------------------------


def changed(*place: str | int, to: Any, of: Baseline | None = None) -> bytes:
    """An export with one changed value, by default of a baseline of runs."""
    document = json.loads(codec.encode(of or make_baseline()))
    inside = document
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = to
    return codec.seal(json.dumps(document).encode())


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
    baseline = codec.decode(Baseline, changed(*place, to=value))
    added = store.add_baseline(baseline)
    assert store.baseline_of_id(added) == baseline
    assert len(store.baselines()) == 1
    assert all(group.points for group in store.history().groups)


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
    assert (kept.id, kept.earlier) == (added, 0)
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


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (("fingerprint", "gpus"), {"0": "GPU-0"}, r"fingerprint\.gpus"),
        (("runs",), [json.loads(codec.encode(make_run()))], "of one link or of all links"),
    ],
)
def test_an_edited_file_is_refused(place: tuple[str | int, ...], value: Any, sentence: str) -> None:
    with pytest.raises(DocumentError, match=sentence):
        codec.decode(Baseline, changed(*place, to=value, of=baseline()))
