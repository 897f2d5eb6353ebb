"""The known hosts of the package, and the nearest of them."""

from __future__ import annotations

import msgspec
import pytest
from doctor.cases import GEN5_X16, h200, h200_link, run_of

from pyxfer._doctor.session import nearest_known, references
from pyxfer._document.codec import decode_reference
from pyxfer._document.examinations import Reference
from pyxfer._document.runs import Fact, LinkState, Run, unknown
from pyxfer.errors import DocumentError

H200 = next(each for each in references() if each.device == "NVIDIA H200")


def known(name: str, device: str, link: LinkState, payload: int = 256) -> Reference:
    return msgspec.structs.replace(H200, name=name, device=device, link=link, max_payload_bytes=payload)


A100 = known("an A100", "NVIDIA A100-SXM4-80GB", LinkState(4, 16))
SLOW = known("an H200 at Gen4", "NVIDIA H200", LinkState(4, 16))
SMALL = known("an H200 with small packets", "NVIDIA H200", GEN5_X16, 128)


def nearest(run: Run) -> str:
    found = nearest_known(run, (A100, SLOW, SMALL, H200)).value
    assert found is not None
    return found.reference.name


def test_a_known_host_has_the_run_of_its_figures() -> None:
    for reference in references():
        run = run_of(reference)
        assert run.device.name == reference.device
        best = run.ceiling("h2d", 256 << 20)
        assert best.gbps == reference.gbps("h2d", "pinned", 256 << 20)


def test_the_h200_has_figures_of_every_size_in_each_direction() -> None:
    sizes = {figure.nbytes for figure in H200.figures}
    assert len(H200.figures) == 4 * len(sizes)
    assert all(figure.rate.low_gbps for figure in H200.figures)


def test_the_nearest_has_the_same_device_then_link_then_payload() -> None:
    assert nearest(h200()) == H200.name
    assert nearest(h200(link=h200_link(LinkState(4, 16)))) == "an H200 at Gen4"
    assert nearest(h200(link=h200_link(max_payload_bytes=Fact(128)))) == "an H200 with small packets"
    a100 = msgspec.structs.replace(h200().device, name="NVIDIA A100-SXM4-80GB")
    assert nearest(h200(device=a100)) == "an A100"


def test_an_unknown_device_is_nearest_to_a_similar_link() -> None:
    other = msgspec.structs.replace(h200().device, name="NVIDIA L40S")
    assert nearest(h200(device=other, link=h200_link(LinkState(4, 16)))) in ("an A100", "an H200 at Gen4")


def test_the_same_kind_of_host_is_alike() -> None:
    found = nearest_known(h200()).value
    assert found is not None
    assert found.alike
    assert found.differs == ()


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (h200(link=h200_link(LinkState(5, 8))), "PCIe 5.0 x8 here"),
        (h200(link=h200_link(max_payload_bytes=unknown("takes root"))), "MaxPayload unknown here"),
        (h200(device=msgspec.structs.replace(h200().device, mig=Fact(True))), "a part of a GPU here"),
        (h200(device=msgspec.structs.replace(h200().device, confidential=Fact(True))), "encrypted here"),
        (h200(device=msgspec.structs.replace(h200().device, name="NVIDIA H100 PCIe")), "NVIDIA H100 PCIe here"),
    ],
)
def test_differences_from_the_known_host_are_listed(run: Run, word: str) -> None:
    found = nearest_known(run).value
    assert found is not None
    assert not found.alike
    assert word in found.differs[0]


def test_without_a_pcie_link_there_is_no_nearest_host() -> None:
    link = msgspec.structs.replace(h200_link(), kind="c2c", raw_peak_gbps=unknown("joined chip to chip"))
    assert "joined chip to chip" in (nearest_known(h200(link=link)).reason or "")


@pytest.mark.parametrize("data", [b"{}", b"[]", b'{"schema_version": 99}', b'{"schema_version": 1, "name": 3}'])
def test_an_invalid_reference_is_refused(data: bytes) -> None:
    with pytest.raises(DocumentError, match=r"it\.json"):
        decode_reference(data, "it.json")
