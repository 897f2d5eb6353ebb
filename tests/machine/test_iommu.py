from __future__ import annotations

from pathlib import Path

import pytest
from machine.fake_host import GPU, Port, gpu, make_path, write

from pyxfer._machine.environment import read_translation


@pytest.mark.parametrize("kind", ["identity", "DMA", "DMA-FQ"])
def test_the_type_is_that_of_the_group_of_the_device(kind: str, tmp_path: Path) -> None:
    folder = make_path(tmp_path, Port("0000:3a:00.0"), Port(GPU))
    group = tmp_path / "sys/kernel/iommu_groups/17"
    write(tmp_path, sys__kernel__iommu_groups__17__type=f"{kind}\n")
    (folder / "iommu_group").symlink_to(group)
    assert read_translation(gpu(), tmp_path).value == kind


def test_without_groups_there_is_no_translation(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU))
    assert read_translation(gpu(), tmp_path).value == "none"


def test_a_device_without_a_group_is_unknown(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU))
    write(tmp_path, sys__kernel__iommu_groups__3__type="DMA\n")
    assert GPU in (read_translation(gpu(), tmp_path).reason or "")


def test_a_device_without_a_pci_address_has_a_reason(tmp_path: Path) -> None:
    device = gpu(pci=None)
    assert read_translation(device, tmp_path).reason == device.pci.reason
