"""Watches: impossible figures are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_in import numbers, with_number
from watch_samples import TURNS, make_stalled, make_watched

from pyxfer._document import codec
from pyxfer._document.watches import Watched
from pyxfer.errors import DocumentError

WATCHED = make_watched()
ENCODED = codec.encode(WATCHED)
STALLED = json.loads(codec.encode(make_stalled()))
NUMBERS = list(numbers(STALLED))


def altered(**fields: Any) -> bytes:
    return json.dumps({**json.loads(ENCODED), **fields}).encode()


def refused(data: bytes) -> str:
    with pytest.raises(DocumentError) as refusal:
        codec.decode(Watched, data, "'watch.json'")
    return str(refusal.value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"count": 0}, "the count of slow steps is at least one; got 0"),
        ({"count": TURNS}, "most steps are usual ones; got 20 slow steps of 20"),
        ({"count": 10 * TURNS}, "most steps are usual ones; got 200 slow steps of 20"),
        ({"share": 1.5}, "their share is at most 1"),
        ({"more_s": -1.0}, "more_s and longest_s of slow steps are above 0"),
        ({"longest_s": None}, "Expected `float`, got `null`"),
        ({"mostly": "luck"}, "Invalid enum value 'luck'"),
    ],
    ids=["none", "all", "more", "share", "less", "nan", "part"],
)
def test_impossible_slow_steps_are_refused(fields: dict[str, Any], reason: str) -> None:
    steps = STALLED["steps"]
    text = refused(altered(steps={**steps, "slow": {**steps["slow"], **fields}}))
    assert text.startswith("'watch.json' is not a pyxfer watch: ")
    assert reason in text


def stalled(**fields: Any) -> str:
    """The error for a stalled loop whose steps have other figures."""
    steps = STALLED["steps"]
    text = refused(altered(steps={**steps, **fields}))
    assert text.startswith("'watch.json' is not a pyxfer watch: ")
    return text


@pytest.mark.parametrize("name", ["watched", "skipped", "failed", "unclosed"])
def test_negative_counts_of_steps_are_refused(name: str) -> None:
    assert f"{name} of a watch is zero or above, and finite; got -1" in stalled(**{name: -1}, slow=None)


def test_a_count_of_slow_steps_unlike_the_list_is_refused() -> None:
    slow = STALLED["steps"]["slow"]
    assert "got 3 slow steps, and 2 marked" in stalled(slow={**slow, "count": 3})
    assert "got 0 slow steps, and 2 marked" in stalled(slow=None)


@pytest.mark.parametrize("longest_s", [0.012, 0.044])
def test_a_longest_slow_step_outside_of_all_steps_is_refused(longest_s: float) -> None:
    slow = STALLED["steps"]["slow"]
    text = stalled(slow={**slow, "longest_s": longest_s})
    assert f"above the shortest of all steps, 0.013 s, and none is above 0.043 s; got {longest_s} s" in text


def test_slow_steps_shorter_than_usual_ones_are_refused() -> None:
    parts = {**STALLED["parts"], "period_s": 0.05}
    text = refused(json.dumps({**STALLED, "parts": parts}).encode())
    assert "the longest took 0.043 s, and a usual one 0.05 s" in text


def test_a_negative_window_is_refused() -> None:
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
def test_impossible_parts_are_refused(fields: dict[str, float], reason: str) -> None:
    document = json.loads(ENCODED)
    assert reason in refused(altered(parts={**document["parts"], **fields}))
    step, *others = document["steps"]["each"]
    steps = [{**step, "parts": {**step["parts"], **fields}}, *others]
    assert reason in refused(altered(steps={**document["steps"], "each": steps}))


@pytest.mark.parametrize("name", ["count", "seconds", "share", "busy_s", "h2d_bytes", "d2h_bytes"])
def test_negative_figures_of_a_range_are_refused(name: str) -> None:
    (decode,) = json.loads(ENCODED)["ranges"]
    assert f"{name} of a range is zero or above" in refused(altered(ranges=[{**decode, name: -1}]))


@given(st.sampled_from(NUMBERS), st.sampled_from([0, -1, 5e-324, 0.5, 1e308, -1e308, 10**19]))
def test_a_watch_with_any_number_is_refused_or_printed(place: str, number: float) -> None:
    data = with_number(STALLED, place, number)
    try:
        watched = codec.decode(Watched, data)
    except DocumentError:
        return
    assert watched.report(80)
    assert watched.to_markdown()
