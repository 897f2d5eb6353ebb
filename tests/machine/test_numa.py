"""NUMA: threads and memory that are bound to a node, and pages by node."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from machine.fake_host import GPU, FakeEngine, Port, gpu, make_path, nvml, write

from pyxfer import native
from pyxfer._document.machines import Fact
from pyxfer._machine.devices import find_device
from pyxfer._machine.numa import bind, device_node, farthest_node, read_nodes, verify_pages

MINE = sorted(os.sched_getaffinity(0))
needs_two_cpus = pytest.mark.skipif(len(MINE) < 2, reason="needs two CPUs")


def nodes(root: Path, **cpulists: str) -> None:
    folder = "sys/devices/system/node"
    write(root, **{f"{folder}/{node}/cpulist": f"{cpus}\n" for node, cpus in cpulists.items()})
    write(root, **{f"{folder}/online": f"0-{len(cpulists) - 1}\n"})


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    nodes(tmp_path, node0=str(MINE[0]), node1=str(MINE[-1]))
    return tmp_path


@needs_two_cpus
def test_thread_is_bound_to_the_node_inside_the_block(two_nodes: Path) -> None:
    engine = FakeEngine()
    with bind(engine, Fact(1), root=two_nodes) as placement:
        assert os.sched_getaffinity(0) == {MINE[-1]}
        assert placement.cpus.value == str(MINE[-1])
        assert placement.memory_node.value == 1
    assert os.sched_getaffinity(0) == set(MINE)
    assert engine.preferred == [1, None]


@needs_two_cpus
def test_an_exception_restores_cpus_and_memory_policy(two_nodes: Path) -> None:
    engine = FakeEngine()
    with pytest.raises(RuntimeError, match="inside"), bind(engine, Fact(0), root=two_nodes):
        raise RuntimeError("inside")
    assert os.sched_getaffinity(0) == set(MINE)
    assert engine.preferred == [0, None]


@needs_two_cpus
def test_a_refused_memory_policy_has_a_reason_and_the_thread_is_bound(two_nodes: Path) -> None:
    engine = FakeEngine(refusal=OSError(errno.EPERM, "Operation not permitted"))
    with bind(engine, Fact(1), root=two_nodes) as placement:
        assert os.sched_getaffinity(0) == {MINE[-1]}
    assert "Operation not permitted" in (placement.memory_node.reason or "")
    assert os.sched_getaffinity(0) == set(MINE)


def unbound_reason(root: Path, node: Fact[int]) -> str:
    engine = FakeEngine()
    with bind(engine, node, root=root) as placement:
        assert os.sched_getaffinity(0) == set(MINE)
    assert engine.preferred == []
    assert placement.cpus.reason == placement.memory_node.reason
    return placement.cpus.reason or ""


@pytest.mark.parametrize(
    ("cpulists", "node", "reason"),
    [
        ({"node0": str(MINE[0]), "node1": "4000-4003"}, 1, "NUMA node 1 (4000-4003)"),
        ({"node0": str(MINE[0]), "node1": str(MINE[-1]), "node2": ""}, 2, "NUMA node 2 has no CPUs"),
        ({"node0": str(MINE[0]), "node1": ""}, 0, "one NUMA node"),
    ],
)
def test_a_node_that_gives_no_choice_is_not_bound(
    cpulists: dict[str, str], node: int, reason: str, tmp_path: Path
) -> None:
    nodes(tmp_path, **cpulists)
    assert reason in unbound_reason(tmp_path, Fact(node))


def test_nodes_of_this_machine_have_its_cpus() -> None:
    found = read_nodes()
    if found.value is None:
        pytest.skip(f"no NUMA nodes shown here: {found.reason}")
    assert set(MINE) <= set().union(*found.value.values())


def test_pages_are_counted_by_node() -> None:
    pages = verify_pages(FakeEngine(pages={1: 3, 0: 500, -errno.ENOENT: 2, -errno.EFAULT: 1}), 4096, 1 << 20)
    assert pages.value == {"0": 500, "1": 3, "untouched": 2, "EFAULT": 1}


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.EPERM, "CAP_SYS_NICE"), (errno.ENOSYS, "built without NUMA"), (errno.EINVAL, "Invalid argument")],
)
def test_a_refused_page_query_has_a_reason(code: int, words: str) -> None:
    pages = verify_pages(FakeEngine(refusal=OSError(code, os.strerror(code))), 4096, 4096)
    assert words in (pages.reason or "")


def test_pages_of_an_array_are_on_nodes_of_this_machine() -> None:
    try:
        engine = native.load("host")
    except ImportError as error:
        pytest.skip(f"the compiled engine is not built: {error}")
    array = np.ones(1 << 20, dtype=np.uint8)
    pages = verify_pages(engine, array.ctypes.data, array.nbytes)
    if pages.value is None:
        pytest.skip(pages.reason or "")
    assert sum(pages.value.values()) >= array.nbytes // os.sysconf("SC_PAGE_SIZE")
    assert all(name.isdecimal() for name in pages.value)


def test_node_of_the_device_is_read_from_nvml_if_sysfs_has_none(tmp_path: Path) -> None:
    (make_path(tmp_path, Port(GPU)) / "numa_node").write_text("-1\n")
    assert device_node(gpu(), root=tmp_path, nvml=nvml(nvmlDeviceGetMemoryAffinity=[0b10])).value == 1


def test_unknown_node_of_the_device_has_both_reasons(tmp_path: Path) -> None:
    (make_path(tmp_path, Port(GPU)) / "numa_node").write_text("-1\n")
    reason = device_node(gpu(), root=tmp_path, nvml=nvml()).reason or ""
    assert all(words in reason for words in (GPU, "nvmlDeviceGetMemoryAffinity", "Not Supported"))


def test_the_farthest_node_has_the_largest_distance(tmp_path: Path) -> None:
    cpu = str(MINE[0])
    nodes(tmp_path, node0=cpu, node1=cpu, node2=cpu)
    assert farthest_node(Fact(0), tmp_path).value == 2  # without distances: any other
    (tmp_path / "sys/devices/system/node/node0/distance").write_text("10 32 12\n")
    assert farthest_node(Fact(0), tmp_path).value == 1


@pytest.mark.parametrize(
    ("cpulists", "word"), [({"node0": "0"}, "one NUMA node"), ({"node0": "0", "node1": "4095"}, "no CPU of another")]
)
def test_without_another_usable_node_there_is_a_reason(cpulists: dict[str, str], word: str, tmp_path: Path) -> None:
    nodes(tmp_path, **cpulists)
    assert word in (farthest_node(Fact(0), tmp_path).reason or "")


def test_host_memory_has_no_node() -> None:
    engine = FakeEngine(RUNTIME="host")
    assert "host memory" in (device_node(find_device(engine, 0)).reason or "")
