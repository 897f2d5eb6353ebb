"""Watches survive being saved, whatever else a file holds is refused with a sentence, and tables keep names as data."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_in import numbers, with_number
from samples import FORMULA, SCRIPT, make_run
from watch_samples import LINE, TURNS, make_stalled, make_unseen, make_watched

from pyxfer._document import documents, json_text, watch_documents
from pyxfer._document.watches import STEP_PARTS, WATCH_SCHEMA_VERSION, Watched
from pyxfer._report.watch import watch_text
from pyxfer.errors import DocumentError, UsageError

SCHEMA = Path(__file__).parents[2] / "docs" / "watch.schema.json"
WATCHED = make_watched()
ENCODED = watch_documents.encode(WATCHED)
STALLED = json.loads(watch_documents.encode(make_stalled()))
NUMBERS = list(numbers(STALLED))

makes_schema = pytest.mark.skipif(
    sys.version_info < json_text.SCHEMA_PYTHON, reason="msgspec cannot make this schema with Python 3.10"
)


def altered(**fields: Any) -> bytes:
    return json.dumps({**json.loads(ENCODED), **fields}).encode()


def refused(data: bytes) -> str:
    with pytest.raises(DocumentError) as refusal:
        watch_documents.decode(data, "'watch.json'")
    return str(refusal.value)


def table(name: str, watched: Watched = WATCHED) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(watched.to_csv(name))))


# --- bytes and files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "watched", [WATCHED, make_unseen(), make_stalled()], ids=["recorded", "not recorded", "with slow steps"]
)
def test_a_saved_watch_is_loaded_as_it_was(watched: Watched, tmp_path: Path) -> None:
    watched.save(tmp_path / "watch.json")
    assert Watched.load(tmp_path / "watch.json") == watched
    assert os.listdir(tmp_path) == ["watch.json"]


def test_an_empty_path_is_called_so() -> None:
    with pytest.raises(UsageError, match=r"^the path is empty; name a file, such as watch.json$"):
        WATCHED.save("")
    with pytest.raises(DocumentError, match=r"^the path is empty; name a file, such as watch.json$"):
        Watched.load("")


def test_a_step_is_one_line_of_the_file() -> None:
    lines = [line for line in ENCODED.decode().splitlines() if '"kernels_s"' in line and '"number"' in line]
    assert len(lines) == TURNS


def test_a_run_is_not_a_watch() -> None:
    assert refused(documents.encode(make_run())).startswith("'watch.json' ")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty; the watch was never written to it"),
        (b"{", "is cut short"),
        (b"nonsense", "is not JSON"),
        (b"[]", "is JSON, but not a pyxfer watch"),
        (b"{}", "has no schema_version"),
        (altered(schema_version=0), "has a schema_version that no pyxfer writes"),
        (altered(schema_version=WATCH_SCHEMA_VERSION + 1), "upgrade pyxfer"),
        (altered(kind="ceiling"), "is not a pyxfer watch but of another kind"),
        (altered(window_s="long"), "is not a pyxfer watch: Expected `float`"),
    ],
    ids=["empty", "cut", "text", "list", "no version", "version 0", "later", "kind", "type"],
)
def test_what_is_no_watch_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    assert reason in refused(data)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"there is no file .*watch.json'; check the name"):
        Watched.load(tmp_path / "watch.json")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"count": 0}, "slow steps are one at least; got 0"),
        ({"count": TURNS}, "most steps are usual ones; got 20 slow steps of 20"),
        ({"count": 10 * TURNS}, "most steps are usual ones; got 200 slow steps of 20"),
        ({"share": 1.5}, "their seconds are finite"),
        ({"more_s": -1.0}, "slow steps took longer than others"),
        ({"longest_s": None}, "Expected `float`, got `null`"),
        ({"mostly": "luck"}, "Invalid enum value 'luck'"),
    ],
    ids=["none", "all", "more", "share", "less", "nan", "part"],
)
def test_slow_steps_that_cannot_be_are_refused(fields: dict[str, Any], reason: str) -> None:
    steps = STALLED["steps"]
    text = refused(altered(steps={**steps, "slow": {**steps["slow"], **fields}}))
    assert text.startswith("'watch.json' is not a pyxfer watch: ")
    assert reason in text


def stalled(**fields: Any) -> str:
    """Why steps of the stalled loop with other figures are refused."""
    steps = STALLED["steps"]
    text = refused(altered(steps={**steps, **fields}))
    assert text.startswith("'watch.json' is not a pyxfer watch: ")
    return text


@pytest.mark.parametrize("name", ["watched", "skipped", "failed", "unclosed"])
def test_fewer_steps_than_none_are_refused(name: str) -> None:
    assert f"{name} of a watch is zero or above, and finite; got -1" in stalled(**{name: -1}, slow=None)


def test_slow_steps_that_are_not_those_of_the_list_are_refused() -> None:
    slow = STALLED["steps"]["slow"]
    assert "got 3 slow steps, and 2 listed so" in stalled(slow={**slow, "count": 3})
    assert "got 0 slow steps, and 2 listed so" in stalled(slow=None)


@pytest.mark.parametrize("longest_s", [0.012, 0.044])
def test_a_longest_slow_step_that_is_none_of_the_window_is_refused(longest_s: float) -> None:
    slow = STALLED["steps"]["slow"]
    text = stalled(slow={**slow, "longest_s": longest_s})
    assert f"above the shortest of all steps, 0.013 s, and none is above 0.043 s; got {longest_s} s" in text


def test_slow_steps_that_are_no_longer_than_usual_ones_are_refused() -> None:
    parts = {**STALLED["parts"], "period_s": 0.05}
    text = refused(json.dumps({**STALLED, "parts": parts}).encode())
    assert "the longest took 0.043 s, and a usual one takes 0.05 s" in text


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    assert "window_s of a watch is zero or above, and finite; got -1.0" in refused(altered(window_s=-1))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"period_s": 5e-324}, "the parts of a period sum to its period_s; 0.013 s exceeds 4.94066e-324 s"),
        ({"idle_s": 1e308}, "1e+308 s exceeds 0.013 s"),
        ({"other_copies_s": 1e19}, "1e+19 s exceeds 0.013 s"),
        ({"hidden_h2d_s": 0.02}, "0.02 s exceeds 0.013 s"),
        ({"kernels_s": 0.0052}, "exceeds 0.013 s"),
        ({"host_s": -0.001}, "host_s of a period is zero or above, and finite; got -0.001"),
        ({"period_s": -1.0}, "period_s of a period is zero or above"),
    ],
    ids=["no period", "idle", "other", "hidden", "a little", "negative", "negative period"],
)
def test_parts_that_cannot_be_are_refused(fields: dict[str, float], reason: str) -> None:
    document = json.loads(ENCODED)
    assert reason in refused(altered(parts={**document["parts"], **fields}))
    step, *others = document["steps"]["each"]
    each = [{**step, "parts": {**step["parts"], **fields}}, *others]
    assert reason in refused(altered(steps={**document["steps"], "each": each}))


@pytest.mark.parametrize("name", ["count", "seconds", "share", "busy_s", "h2d_bytes", "d2h_bytes"])
def test_a_range_of_less_than_nothing_is_refused(name: str) -> None:
    (decode,) = json.loads(ENCODED)["ranges"]
    assert f"{name} of a range is zero or above" in refused(altered(ranges=[{**decode, name: -1}]))


@given(st.sampled_from(NUMBERS), st.sampled_from([0, -1, 5e-324, 0.5, 1e308, -1e308, 10**19]))
def test_a_watch_with_any_other_number_is_refused_or_is_a_page(place: str, number: float) -> None:
    data = with_number(STALLED, place, number)
    try:
        watched = watch_documents.decode(data)
    except DocumentError:
        return
    assert watch_text(watched, 80)
    assert watched.to_markdown()


def test_what_is_not_a_number_is_not_json() -> None:
    data = watch_documents.encode(make_stalled()).replace(b'"more_s": 0.042', b'"more_s": NaN')
    assert "is not JSON" in refused(data)


def test_a_watch_that_was_saved_before_there_were_slow_steps_is_read() -> None:
    steps = json.loads(ENCODED)["steps"]
    del steps["slow"]
    for step in steps["each"]:
        del step["slow"]
    assert watch_documents.decode(altered(steps=steps)) == WATCHED


# --- the schema ------------------------------------------------------------------------------------------------------


@makes_schema
def test_the_published_schema_is_up_to_date() -> None:
    current = json.loads(json.dumps(watch_documents.schema()))
    assert json.loads(SCHEMA.read_text()) == current, (
        "python -m pyxfer._document.watch_documents > docs/watch.schema.json"
    )


def test_saved_watches_are_valid_by_the_published_schema() -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validate(json.loads(ENCODED), schema)
    for watched in (make_unseen(), make_stalled()):
        jsonschema.validate(json.loads(watch_documents.encode(watched)), schema)


def test_a_watch_without_its_verdict_is_not_valid_by_the_published_schema() -> None:
    document = json.loads(ENCODED)
    del document["verdict"]
    with pytest.raises(jsonschema.ValidationError, match="'verdict' is a required property"):
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))


# --- tables ----------------------------------------------------------------------------------------------------------


def test_steps_have_a_row_each_whose_parts_sum_to_the_period() -> None:
    rows = table("steps")
    assert [row["number"] for row in rows] == [str(number) for number in range(11, 11 + TURNS)]
    for row in rows:
        parts = [float(row[f"{name.replace(' ', '_')}_s"]) for name in STEP_PARTS]
        assert sum(parts) == pytest.approx(float(row["period_s"]))


def test_a_step_says_whether_it_is_slow() -> None:
    assert [row["number"] for row in table("steps", make_stalled()) if row["slow"] == "True"] == ["18", "26"]


def test_without_records_what_only_they_tell_is_an_empty_cell() -> None:
    row = table("steps", make_unseen())[0]
    assert row["kernels_s"] == ""
    assert float(row["input_s"]) == pytest.approx(0.004)


def test_copies_have_a_row_a_class() -> None:
    assert [(row["way"], row["memory"], row["count"]) for row in table("copies")] == [
        ("h2d", "pageable", "20"),
        ("d2h", "pageable", "20"),
    ]


def test_calls_have_their_line() -> None:
    row = next(row for row in table("calls") if row["what"] == "d2h")
    assert (row["call"], row["line"], row["count"]) == ("cudaMemcpyAsync", LINE, "20")


def test_ranges_have_their_time() -> None:
    (row,) = table("ranges")
    assert row["name"] == "decode"
    assert float(row["seconds"]) == pytest.approx(0.07)


def test_a_table_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="a watch has no table 'kernels'; choose one of steps, copies, calls, ranges"):
        WATCHED.to_csv("kernels")


def test_a_name_is_no_formula_of_a_spreadsheet() -> None:
    (row,) = table("ranges", make_watched(decode=FORMULA))
    assert row["name"] == "'" + FORMULA


def test_markdown_begins_with_the_verdict_and_has_the_tables() -> None:
    text = WATCHED.to_markdown()
    assert text.splitlines()[2].startswith("- The step is bound by its input.")
    titles = [line[4:] for line in text.splitlines() if line.startswith("### ")]
    assert titles == ["Parts of the period", "Copies", "Calls inside steps", "Ranges", "Next steps (predicted)"]


def test_markdown_says_what_slow_steps_cost() -> None:
    text = make_stalled().to_markdown()
    assert "- 2 of 20 steps are slow: 42.0 ms more than as many usual ones, 13.9 % of the time of all steps" in text
    assert "slow" not in WATCHED.to_markdown()


def test_markdown_of_a_watch_without_records_says_why() -> None:
    assert "no CUPTI library was found" in make_unseen().to_markdown()


def test_a_name_is_no_markup_of_markdown() -> None:
    assert SCRIPT not in make_watched(decode=SCRIPT, line=SCRIPT).to_markdown()


def test_markdown_has_the_units_of_the_page() -> None:
    text = WATCHED.to_markdown()
    row = next(line for line in text.splitlines() if line.startswith("| h2d"))
    assert [cell.strip() for cell in row.split("|")[1:6]] == ["h2d", "pageable", "16 to 64 MiB", "20", "771 MB"]
    assert "| copies to the device |" in text


def test_a_share_below_4_kib_that_an_earlier_pyxfer_kept_is_in_no_table() -> None:
    document = json.loads(ENCODED)
    row = document["activity"]["value"]["copies"][1]
    assert (row["least_bytes"], row["ceiling_share"]["value"]) == (0, None)
    row["ceiling_share"] = {"value": 3.125, "reason": None}
    old = watch_documents.decode(json.dumps(document).encode())
    assert "312.5 %" not in old.to_markdown()
    assert "312.5 %" not in watch_text(old, 80)


def test_names_in_a_foreign_encoding_are_text_in_every_export() -> None:
    watched = make_watched(decode="caf\udce9")
    for text in (watched.to_csv("ranges"), watched.to_markdown(), watch_documents.encode(watched).decode()):
        assert "udce9" in text.encode().decode()
