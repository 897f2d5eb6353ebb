from __future__ import annotations

from typing import Any

import msgspec
from pages import line_with, printed
from ring_samples import make_state
from samples import MARKUP, make_device, make_link, make_run

from pyxfer._document import runs
from pyxfer._document.runs import unknown
from pyxfer._report.host import print_machine


def page_of(run: runs.Run) -> str:
    rings = [make_state()]
    return printed(lambda page: print_machine([run.device], [run.link], [run.placement], rings, run.environment, page))


def test_link_has_its_states() -> None:
    text = page_of(make_run(link=make_link(now=runs.Fact(runs.LinkState(1, 16)))))
    assert line_with(text, "  now    ").endswith("PCIe 1.0 x16")
    assert line_with(text, "  under load ").endswith("PCIe 5.0 x16")
    assert line_with(text, "  hop 0000:19:00.0").endswith("now PCIe 5.0 x16, at most PCIe 5.0 x16")


def test_link_remark_has_its_fix() -> None:
    narrow = make_link(remarks=(runs.Remark("link-narrow", "The link runs at x8.", "Reseat the card."),))
    assert line_with(page_of(make_run(link=narrow)), "  remark").endswith("The link runs at x8. Reseat the card.")


def test_every_field_of_the_environment_is_on_the_page() -> None:
    environment = make_run().environment
    facts: dict[str, Any] = {
        name: unknown(f"reason of {name}")
        for name in environment.__struct_fields__
        if isinstance(getattr(environment, name), runs.Fact)
    }
    text = page_of(make_run(environment=msgspec.structs.replace(environment, **facts)))
    assert [name for name in facts if f"reason of {name}" not in text] == []


def test_device_name_is_plain_text() -> None:
    assert MARKUP in page_of(make_run(device=make_device(name=MARKUP)))
