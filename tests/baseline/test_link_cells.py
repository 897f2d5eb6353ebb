"""The cells of links: their names, and their times."""

from __future__ import annotations

import pytest
from link_samples import make_links

from pyxfer._baseline.figures import Figure, figures_of
from pyxfer._document.cells import parse_cell
from pyxfer._document.links import Links
from pyxfer.errors import UsageError


def by_text(links: Links) -> dict[str, Figure]:
    return {figure.cell.text: figure for figure in figures_of(links)}


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_every_cell_has_a_name_of_its_own_that_finds_it_alone(gpus: int) -> None:
    cells = [figure.cell for figure in figures_of(make_links(gpus, nodes=(0, 1)))]
    assert len(set(cells)) == len(cells)
    for cell in cells:
        pattern = parse_cell(cell.text)
        assert [other for other in cells if pattern.matches(other)] == [cell]


def test_gpus_together_have_a_total_and_their_streams_but_both_directions_only_a_total() -> None:
    texts = {
        text.removesuffix(":128MiB") for text in by_text(make_links(2)) if ".together." in text or ".both.ce" in text
    }
    assert {
        text for text in texts if text.endswith(("host-gpu0", "host-gpu1", "host-gpu0+gpu1")) and ".ce:" in text
    } == {f"links.together.h2d.ce:{ends}" for ends in ("host-gpu0", "host-gpu1", "host-gpu0+gpu1")}
    assert {text for text in texts if ".both.ce:" in text} == {
        *(f"links.host.both.ce:gpu{gpu}" for gpu in (0, 1)),
        "links.together.both.ce:gpu0+gpu1",
    }


@pytest.mark.parametrize(
    "text",
    [
        "links.together.h2d.ce:host-all:128MiB",
        "links.together.both.sm:all:128MiB",
        "links.together.beside-d2h.ce:gpu2+gpu3-host:128MiB",
        "links.pairs.write.ce:gpu0-gpu3:512MiB",
        "links.pairs.through-host.ce:gpu3-gpu0:128MiB",
        "links.pairs.both-read.ce:gpu1+gpu2:512MiB",
        "links.pairs.all-to-one-write.ce:all-gpu3:512MiB",
        "links.pairs.one-to-all-read.ce:gpu3-all:512MiB",
        "links.pairs.ring.ce:all:512MiB",
        "links.local.copy.sm:gpu2-gpu2:2GiB",
        "links.numa.h2d.ce:node1-gpu2:128MiB",
        "links.latency.idle:host-gpu0:2MiB",
        "links.latency.idle:node1-gpu0:2MiB",
        "links.latency.load-100:gpu1-gpu0:2MiB",
        "links.small.batch:gpu2-host:4KiB",
    ],
)
def test_the_names_of_four_gpus(text: str) -> None:
    assert text in by_text(make_links(4, nodes=(0, 1)))


def test_a_name_without_engine_ends_or_size_matches_any() -> None:
    cells = [figure.cell for figure in figures_of(make_links(2))]

    def found(text: str) -> set[str]:
        pattern = parse_cell(text)
        return {cell.text for cell in cells if pattern.matches(cell)}

    assert found("links.pairs.write.ce") == {
        f"links.pairs.write.ce:{ends}:512MiB" for ends in ("gpu0-gpu1", "gpu1-gpu0")
    }
    assert found("links.pairs.write:gpu0-gpu1") == {
        f"links.pairs.write.{engine}:gpu0-gpu1:512MiB" for engine in ("ce", "sm")
    }
    assert found("links.pairs.wri") == set()
    assert found("links.latency:2MiB") == {text for text in found("links.latency") if text.endswith(":2MiB")}
    assert not any(parse_cell("h2d:pinned:64MiB").matches(cell) for cell in cells)


@pytest.mark.parametrize(
    "text",
    [
        "links.pairs.wri.te.ce",
        "links.pear",
        "links.pairs.write.cp",
        "links.pairs:gpu0-gpu1:512MiB:2",
        "links.pairs:512MiB:gpu0-gpu1",
        "links.pairs::512MiB",
    ],
)
def test_a_name_with_other_parts_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_cell(text)


def test_a_rate_is_a_time_for_one_copy_and_a_latency_one_for_one_load() -> None:
    figures = by_text(make_links(2))
    pair, load = figures["links.pairs.write.ce:gpu0-gpu1:512MiB"], figures["links.latency.idle:host-gpu0:2MiB"]
    assert pair.gbps == pytest.approx(396.1, rel=1e-3)
    assert pair.seconds == pytest.approx((512 << 20) / 396.1e9, rel=1e-3)
    assert pair.low_s is not None
    assert pair.high_s is not None
    assert pair.low_s < pair.high_s
    assert load.seconds == pytest.approx(1181e-9, rel=1e-3)
    assert load.gbps == pytest.approx(8 / 1181, rel=1e-3)


def test_the_median_of_short_launches_is_no_cell_without_a_load() -> None:
    links = make_links(1)
    short = [row for row in links.latencies if row.hops < row.places]
    assert {row.load for row in short} == {0.0, 0.5, 1.0}
    assert sum(text.startswith("links.latency.") for text in by_text(links)) == len(links.latencies) - 2


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("links.pairs.write.ce:gpu0-gpu3:512MiB", (0, 3)),
        ("links.numa.h2d.ce:node1-gpu2:128MiB", (2,)),
        ("links.host.both.ce:gpu1:128MiB", (1,)),
        ("links.pairs.both-read.ce:gpu1+gpu2:512MiB", (1, 2)),
        ("links.local.copy.sm:gpu2-gpu2:2GiB", (2,)),
        ("links.together.h2d.ce:host-all:128MiB", ()),
    ],
)
def test_a_cell_names_its_gpus(text: str, gpus: tuple[int, ...]) -> None:
    assert by_text(make_links(4, nodes=(0, 1)))[text].cell.gpus == gpus
