"""A ceiling says where it came from, and what in it is not as in the window."""

from __future__ import annotations

import msgspec
from samples import KIB, MIB, make_device, make_link, make_run
from watch.copying import copies, session, window_of
from watch.windows import Flat, Script, analysed, make_window, steps_at

from pyxfer._document.runs import Direction, Fact, LinkState, Run
from pyxfer._document.watches import Watched
from pyxfer._trace.records import CopyWay
from pyxfer._watch.ceilings import remarks_on_saved
from pyxfer._watch.watch import tell_of
from pyxfer.native import Engine

ASKED: dict[Direction, tuple[int, ...]] = {"h2d": (16 * MIB,)}


def codes(run: Run, asked: dict[Direction, tuple[int, ...]] = ASKED) -> list[str]:
    return [remark.code for remark in remarks_on_saved(run, make_device(), make_link(), asked)]


def told(ceilings: Run | str) -> Watched:
    with copies(64 * KIB) as made, session() as watched:
        made.send()
    assert watched.place is not None
    return tell_of(window_of(watched), watched.place, ceilings)


def test_a_run_of_the_same_device_link_and_sizes_needs_no_remark() -> None:
    assert codes(make_run()) == []


def test_another_device_is_told_by_both_names() -> None:
    run = make_run(device=make_device(name="NVIDIA L4"))
    (remark,) = remarks_on_saved(run, make_device(), make_link(), ASKED)
    assert remark.text == "the ceiling was measured on another device: NVIDIA L4; this one is NVIDIA H200"
    assert "pyxfer ceiling" in (remark.fix or "")


def test_another_link_is_told_by_its_generation_and_width() -> None:
    link = msgspec.structs.replace(make_link(), under_load=Fact(LinkState(generation=4, width=8)))
    (remark,) = remarks_on_saved(make_run(link=link), make_device(), make_link(), ASKED)
    assert remark.text == "the ceiling was measured over another link: PCIe 4.0 x8; this one is PCIe 5.0 x16"


def test_sizes_far_from_those_of_the_run_are_told() -> None:
    measurements = tuple(row for row in make_run().measurements if row.nbytes == 4 * KIB)
    (remark,) = remarks_on_saved(make_run(measurements=measurements), make_device(), make_link(), ASKED)
    assert remark.code == "other-sizes"
    assert "copies h2d of about 16 MiB lie far from the sizes of the saved run, 4 KiB to 4 KiB" in remark.text


def test_sizes_within_a_factor_of_four_and_those_that_every_ceiling_stands_for_are_near() -> None:
    assert codes(make_run(), {"h2d": (4, 64 * MIB, 1 << 34)}) == []


def test_copies_faster_than_the_ceiling_are_told() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 100, nbytes=10 * MIB)
    watched = analysed(make_window(script, 100, steps_at((0, 1, 100))), Flat(50.0))
    assert [remark.code for remark in watched.remarks] == ["above-ceiling"]
    assert "of the ceiling, so it is too low" in watched.remarks[0].text


def test_small_copies_may_be_faster_than_their_ceiling_for_it_holds_their_issuing_too() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 1, nbytes=100_000)
    assert analysed(make_window(script, 100, steps_at((0, 1, 100))), Flat(50.0)).remarks == ()


def test_a_ceiling_measured_now_says_so(engine: Engine) -> None:
    source = told("measured").ceiling_source.value
    assert source is not None
    assert source.source == "measured"


def test_a_saved_one_says_of_what_machine_and_when_and_that_it_is_another(engine: Engine) -> None:
    watched, run = told(make_run()), make_run()
    source = watched.ceiling_source.value
    assert source is not None
    assert (source.source, source.device, source.host) == ("saved", run.device.name, run.environment.host)
    assert source.taken_at == run.environment.taken_at
    assert "other-device" in {remark.code for remark in watched.remarks}
