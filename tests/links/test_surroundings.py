"""Unusual machines: recognised by attributes and NVML, and described without a wrong peak."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from link_samples import link_device, make_links
from machine.fake_host import GPU, EngineParts, Port, Properties, gpu, make_path, nvml, without_nvml, write
from samples import make_device, make_link

from pyxfer._document.links import Trait
from pyxfer._document.machines import Fact, unknown
from pyxfer._links import surroundings
from pyxfer._links.surroundings import HOST_PAGE_TABLES, INTEGRATED, PAGEABLE_ACCESS, traits
from pyxfer._report.link_words import TRAITS, trait_texts
from pyxfer.errors import CudaError

OTHER = "0000:5d:00.0"


@dataclass
class Attributes:
    """An engine with these attributes; the driver does not know the others."""

    known: dict[int, int] = field(default_factory=dict)

    def device_attribute(self, device: int, attribute: int) -> int:
        if attribute not in self.known:
            raise CudaError(1, "cudaErrorInvalidValue", "cudaDeviceGetAttribute", "here", "invalid argument", "")
        return self.known[attribute]


def in_tree(root: Path) -> Path:
    make_path(root, Port("0000:3a:01.0"), Port(GPU))
    return root


GRACE = Attributes({PAGEABLE_ACCESS: 1, HOST_PAGE_TABLES: 1, INTEGRATED: 0})
CASES: list[tuple[Attributes, dict[str, Any], set[Trait]]] = [
    (Attributes(), {}, set()),
    (GRACE, {}, {"c2c"}),
    (Attributes({PAGEABLE_ACCESS: 1, HOST_PAGE_TABLES: 0, INTEGRATED: 0}), {}, {"hmm"}),
    (Attributes({PAGEABLE_ACCESS: 1, HOST_PAGE_TABLES: 1, INTEGRATED: 1}), {}, {"integrated"}),
    (Attributes(), {"mig": Fact(True)}, {"mig"}),
    (Attributes(), {"vgpu": Fact(True)}, {"vgpu"}),
    (Attributes(), {"pci": Fact("0000:99:00.0")}, {"no-tree"}),
    (Attributes(), {"runtime": "host"}, set()),
]


@pytest.mark.parametrize(("engine", "device", "found"), CASES)
def test_a_gpu_is_recognised(engine: Any, device: dict[str, Any], found: set[Trait], tmp_path: Path) -> None:
    changed = msgspec.structs.replace(gpu(), **device)
    assert set(traits(engine, changed, make_link(), in_tree(tmp_path))) == found


def test_wsl_is_recognised_by_its_kernel(tmp_path: Path) -> None:
    write(in_tree(tmp_path), proc__version="Linux version 5.15.167.4-microsoft-standard-WSL2 (gcc)\n")
    engine: Any = Attributes()
    assert "wsl2" in traits(engine, gpu(), make_link(), tmp_path)


@pytest.mark.parametrize("trait", TRAITS)
def test_each_trait_has_a_sentence(trait: Trait) -> None:
    devices = (link_device(make_device(), traits=(trait,)),)
    (text,) = trait_texts(make_links(1, devices=devices, groups=("host",)))
    assert text.startswith("GPU 0 ")


def test_grace_has_the_peak_of_its_c2c_link_and_none_of_pci_express() -> None:
    reason = "host and device are joined chip to chip (NVLink-C2C), so no PCIe peak applies"
    link = make_link(
        kind="c2c", raw_peak_gbps=unknown(reason), h2d_peak_gbps=unknown(reason), d2h_peak_gbps=unknown(reason)
    )
    device = link_device(make_device(name="NVIDIA GH200 480GB"), link=link, c2c_gbps=Fact(450.0), traits=("c2c",))
    assert device.host_peak_gbps("h2d").value == 450.0
    run = make_links(1, rate_of=lambda *_: 342.0, devices=(device,), groups=("host",))
    assert run.traffics[0].flows[0].peak_share.value == pytest.approx(342 / 450, rel=1e-3)
    bare = msgspec.structs.replace(device, c2c_gbps=unknown("NVML cannot be opened"))
    run = make_links(1, rate_of=lambda *_: 342.0, devices=(bare,), groups=("host",))
    assert run.traffics[0].flows[0].peak_share.value is None
    assert "NVML" in (run.traffics[0].flows[0].peak_share.reason or "")


def test_an_integrated_gpu_has_no_peak(tmp_path: Path) -> None:
    engine = FakeLinks([Properties(integrated=True)], known={INTEGRATED: 1})
    found = surroundings.read_device(engine, gpu(), without_nvml(), tmp_path)
    assert found.host_peak_gbps("h2d").value is None
    assert found.traits == ("integrated",)


@dataclass
class LinkParts(EngineParts):
    """An engine with attributes and peers."""

    known: dict[int, int] = field(default_factory=dict)
    refuses: bool = False

    def device_attribute(self, device: int, attribute: int) -> int:
        return self.known.get(attribute, 0)

    def can_access_peer(self, device: int, peer: int) -> bool:
        if self.refuses:
            raise CudaError(999, "cudaErrorUnknown", "cudaDeviceCanAccessPeer", "here", "unknown error", "")
        return True


FakeLinks: Any = LinkParts


def pair() -> list[Any]:
    return [gpu(), msgspec.structs.replace(gpu(pci=OTHER), index=1)]


def test_peers_without_nvml_have_no_peak_and_the_reason() -> None:
    for peer in surroundings.read_peers(FakeLinks(), pair(), without_nvml()):
        assert (peer.access.value, peer.kind, peer.peak_gbps.value) == (True, "unknown", None)
        assert "NVML" in (peer.peak_gbps.reason or "")
    (first, _) = surroundings.read_peers(FakeLinks(refuses=True), pair(), without_nvml())
    assert first.access.value is None


def test_peers_that_nvlink_does_not_join_are_reached_over_pci_express() -> None:
    library = nvml(nvmlDeviceGetP2PStatus=lambda *_: 4)
    assert {peer.kind for peer in surroundings.read_peers(FakeLinks(), pair(), library)} == {"pcie"}


def test_the_tree_shows_gpus_below_one_switch(tmp_path: Path) -> None:
    make_path(tmp_path, Port("0000:3a:01.0"), Port("0000:3b:00.0"), Port("0000:3c:00.0"), Port("0000:3d:00.0"))
    below = tmp_path / "sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0"
    (below / "0000:3c:01.0/0000:5d:00.0").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:5d:00.0").symlink_to(below / "0000:3c:01.0/0000:5d:00.0")
    devices = [gpu(pci="0000:3d:00.0"), msgspec.structs.replace(gpu(pci=OTHER), index=1)]
    assert surroundings.read_tree(devices, tmp_path).value == ((0, 1),)


def test_a_machine_without_a_tree_says_so(tmp_path: Path) -> None:
    assert surroundings.read_tree(pair(), tmp_path).reason == surroundings.NO_TREE
    assert surroundings.read_tree([gpu()], tmp_path).value is None


def test_memory_of_gpus_is_no_node_for_host_buffers(tmp_path: Path) -> None:
    nodes = {f"sys__devices__system__node__node{n}__cpulist": cpus for n, cpus in ((0, "0-71\n"), (1, "\n"))}
    write(tmp_path, **nodes, sys__devices__system__node__online="0-1\n", sys__devices__system__node__has_memory="0-1\n")
    assert surroundings.host_nodes(tmp_path).value == (0,)


def test_nodes_without_memory_are_left_out(tmp_path: Path) -> None:
    nodes = {f"sys__devices__system__node__node{n}__cpulist": f"{n}\n" for n in (0, 1)}
    write(tmp_path, **nodes, sys__devices__system__node__online="0-1\n", sys__devices__system__node__has_memory="1\n")
    assert surroundings.host_nodes(tmp_path).value == (1,)
    assert surroundings.host_nodes(tmp_path / "nothing").value is None
