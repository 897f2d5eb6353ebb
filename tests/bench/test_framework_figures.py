"""The tables made from a frameworks run."""

from __future__ import annotations

from typing import Any

import framework_figures as figures
import msgspec
import pytest
from framework_samples import make_frameworks_run, make_image_batch_run, make_refused
from samples import make_run

from pyxfer._document.runs import Run
from pyxfer.errors import UsageError

MIB = 1 << 20
SIZES = (64 * 1024, 16 * MIB)
BATCHES = (1, 512)


def cells(text: str, *beginning: str) -> list[str]:
    """Cells of the only row of a Markdown table that starts with these cells."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    (found,) = [line for line in lines if line[: len(beginning)] == list(beginning)]
    return found


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_has_the_overview_of_every_framework_in_both_directions() -> None:
    text = figures.overview_page(make_frameworks_run(SIZES))
    above = text.partition("marks the usual call")[0]
    for name in ("torch.to", "torch.cpu", "tf.constant", "tf.numpy", "jax.device-put", "jax.asarray"):
        assert name in above


def test_the_page_has_one_framework_in_full_at_the_largest_size() -> None:
    text = figures.overview_page(make_frameworks_run(SIZES))
    below = text.partition("marks the usual call")[2]
    assert "TensorFlow 2.21.0: h2d, to the GPU\nat 16 MiB" in below
    assert "tf.cast-eager" in below
    assert "torch." not in below
    assert "64 KiB" not in below


def test_the_page_explains_the_letters_that_it_shows() -> None:
    refused = tuple(make_refused("tensorflow", "tf.rawop", nbytes) for nbytes in SIZES)
    run = make_frameworks_run(SIZES)
    run = msgspec.structs.replace(run, measurements=(*run.measurements, *refused))
    text = figures.overview_page(run)
    assert "\na  tf.rawop-unaligned, tf.rawop at 16 MiB: not available in TensorFlow 2.21" in text


def test_the_page_omits_ingest_routes_and_the_ends_of_workers() -> None:
    text = figures.overview_page(make_frameworks_run(SIZES))
    assert "ingest" not in text
    assert "Summary" not in text
    assert "Workers" not in text


def test_the_page_is_a_code_block_of_eighty_columns_and_limited_length() -> None:
    lines = figures.overview_page(make_frameworks_run(SIZES)).splitlines()
    assert (lines[0], lines[-1]) == ("```", "```")
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 65


def test_without_tensorflow_the_page_shows_the_first_framework() -> None:
    run = make_frameworks_run(SIZES)
    run = figures.restricted(run, ("h2d",), "jax")
    assert "JAX 0.11.2: h2d, to the GPU\nat 16 MiB" in figures.overview_page(run)


def test_a_run_without_a_route_over_the_link_is_refused() -> None:
    with pytest.raises(UsageError, match="no route over the link"):
        figures.overview_page(make_frameworks_run(SIZES, measurements=()))


# --- usual and best --------------------------------------------------------------------------------------------------


def rate_of(run: Run, route: str, nbytes: int, direction: str = "h2d") -> str:
    found = next(m for m in run.measurements if (m.route, m.nbytes, m.direction) == (route, nbytes, direction))
    assert found.gbps is not None
    return f"{found.gbps:.2f}"


def test_each_framework_and_direction_is_a_row_with_the_usual_call_and_the_fastest_route() -> None:
    run = make_frameworks_run(SIZES)
    line = cells(figures.usual_best(run), "PyTorch", "h2d")
    usual, best = rate_of(run, "torch.to", 16 * MIB), rate_of(run, "torch.pinned-nonblocking", 16 * MIB)
    assert line[:5] == ["PyTorch", "h2d", "16 MiB", "torch.to", usual]
    assert line[6:8] == ["torch.pinned-nonblocking", best]
    assert line[5].endswith(" %")
    assert line[8].endswith(" %")


def test_ingest_routes_have_no_row() -> None:
    assert "ingest" not in figures.usual_best(make_frameworks_run(SIZES))


def test_a_missing_usual_call_is_shown_as_dashes() -> None:
    run = make_frameworks_run(SIZES)
    kept = tuple(m for m in run.measurements if m.route != "torch.to")
    line = cells(figures.usual_best(msgspec.structs.replace(run, measurements=kept)), "PyTorch", "h2d")
    assert line[3:6] == ["-", "-", "-"]


# --- shares ----------------------------------------------------------------------------------------------------------


def test_shares_list_every_route_fastest_first() -> None:
    text = figures.shares(make_frameworks_run((96 * MIB,)))
    names = [line.split(" | ")[3] for line in text.splitlines() if line.startswith("| PyTorch | h2d")]
    assert names[0] == "torch.pinned-nonblocking"
    assert names[-1] == "torch.cast-blocking"
    assert len(names) == 9


def test_each_share_has_its_route_host_copies_and_rate() -> None:
    run = make_frameworks_run((96 * MIB,))
    line = cells(figures.shares(run), "TensorFlow", "h2d", "96 MiB", "tf.constant")
    assert line[4:6] == ["2", rate_of(run, "tf.constant", 96 * MIB)]
    assert line[6].endswith(" %")


def test_a_refused_route_is_shown_as_dashes() -> None:
    line = cells(figures.shares(make_frameworks_run((96 * MIB,))), "TensorFlow", "h2d", "96 MiB", "tf.rawop-unaligned")
    assert line[5:] == ["-", "-"]


# --- image batches ---------------------------------------------------------------------------------------------------


def test_image_batches_have_the_chosen_calls_the_fastest_routes_and_the_ceiling() -> None:
    header = cells(figures.image_batches(make_image_batch_run(BATCHES)), "batch")
    assert header[:4] == ["batch", "tf.function", "tf.function-jit", "torch.to"]
    assert set(header[4:6]) == {"torch.pinned-nonblocking (fastest)", "tf.dlpack-pinned (fastest)"}
    assert header[6] == "ceiling"


def test_image_batches_are_in_megabytes_per_second() -> None:
    run = make_image_batch_run(BATCHES)
    line = cells(figures.image_batches(run), "512")
    found = next(m for m in run.measurements if m.route == "tf.function" and m.batch == 512)
    assert found.gbps is not None
    assert line[1] == f"{found.gbps * 1000:.0f}"
    assert line[6] == f"{(run.ceiling('h2d', found.nbytes).gbps or 0) * 1000:.0f}"


def test_published_figures_are_shown_with_their_source() -> None:
    text = figures.image_batches(make_image_batch_run(BATCHES))
    header, line = cells(text, "batch"), cells(text, "512")
    at = header.index("published: PyTorch, RTX 2080 Ti")
    assert line[at] == "9352"
    assert text.endswith("\nPublished figures: a forum.\n")


@pytest.mark.parametrize("published", [(), None])
def test_a_batch_without_a_published_figure_is_a_dash(published: Any) -> None:
    run = make_image_batch_run((3,)) if published is None else make_image_batch_run(BATCHES, published=published)
    text = figures.image_batches(run)
    if published is None:
        assert cells(text, "3")[7:] == ["-", "-", "-"]
    else:
        assert "ublished" not in text


def test_a_fastest_route_among_the_chosen_calls_is_shown_once() -> None:
    run = make_image_batch_run(BATCHES)
    kept = tuple(m for m in run.measurements if m.nature is None or m.route in ("torch.to", "tf.function"))
    header = cells(figures.image_batches(msgspec.structs.replace(run, measurements=kept)), "batch")
    assert header[:4] == ["batch", "tf.function (fastest)", "torch.to (fastest)", "ceiling"]


def test_a_run_of_raw_copies_has_no_groups() -> None:
    assert figures.groups_of(make_run()) == []
