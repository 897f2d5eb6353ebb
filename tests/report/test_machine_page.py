from __future__ import annotations

from typing import Any

import msgspec
from pages import host_run, line_with, printed
from ring_samples import make_state
from samples import MARKUP, make_device, make_link, make_run

from pyxfer._document import runs
from pyxfer._document.runs import unknown
from pyxfer._report.host import print_machine


def page_of(run: runs.Run) -> str:
    rings = [make_state()]
    return printed(lambda page: print_machine([run.device], [run.link], [run.placement], rings, run.environment, page))


def test_device_has_its_facts() -> None:
    text = page_of(make_run())
    assert line_with(text, "  UUID").split()[1] == "GPU-6a1f2c3d-0001-0002-0003-000000000004"
    assert line_with(text, "  memory", "140.4 GiB")
    assert line_with(text, "  confidential computing").endswith("no")


def test_an_unknown_fact_has_the_reason() -> None:
    assert line_with(page_of(make_run()), "MaxReadReq").endswith(
        "unknown: PCI configuration space is readable only in part without root"
    )


def test_link_has_its_states() -> None:
    text = page_of(make_run(link=make_link(now=runs.Fact(runs.LinkState(1, 16)))))
    assert line_with(text, "  now    ").endswith("PCIe 1.0 x16")
    assert line_with(text, "  under load ").endswith("PCIe 5.0 x16")
    assert line_with(text, "  hop 0000:19:00.0").endswith("now PCIe 5.0 x16, at most PCIe 5.0 x16")


def test_link_remark_has_its_fix() -> None:
    narrow = make_link(remarks=(runs.Remark("link-narrow", "The link runs at x8.", "Reseat the card."),))
    assert line_with(page_of(make_run(link=narrow)), "  remark").endswith("The link runs at x8. Reseat the card.")


def test_placement_and_environment_are_printed() -> None:
    text = page_of(make_run())
    assert line_with(text, "  CPUs for measuring").endswith("0-15")
    assert line_with(text, "  throttled by").endswith("none")
    assert line_with(text, "  GPU clocks").endswith("SM 1980 MHz of at most 1980, memory 3201 MHz of at most 3201")


def test_every_field_of_the_environment_is_on_the_page() -> None:
    environment = make_run().environment
    facts: dict[str, Any] = {
        name: unknown(f"reason of {name}")
        for name in environment.__struct_fields__
        if isinstance(getattr(environment, name), runs.Fact)
    }
    text = page_of(make_run(environment=msgspec.structs.replace(environment, **facts)))
    assert [name for name in facts if f"reason of {name}" not in text] == []


def test_without_a_gpu_there_is_no_link() -> None:
    text = page_of(host_run(make_run()))
    assert text.splitlines()[0] == "host memory, not a PCIe link"
    assert "MaxPayload" not in text


def test_device_name_is_plain_text() -> None:
    assert MARKUP in page_of(make_run(device=make_device(name=MARKUP)))


def test_device_has_its_ring() -> None:
    assert line_with(page_of(make_run()), "  settings").endswith(
        "15 threads, 512 slots of 64 KiB, demoting: 32 MiB page-locked"
    )
