"""Limits of this process, NUMA nodes, error counters and ports, and small files of the kernel."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from machine.fake_host import GPU, FakeEngine, Port, config_space, gpu, make_path, nvml, write

from pyxfer import native
from pyxfer._document.examinations import Bound
from pyxfer._document.machines import Fact, unknown
from pyxfer._machine.devices import find_device
from pyxfer._machine.health import read_counters, read_device_memory, read_port_errors, read_ports
from pyxfer._machine.host import (
    available_host_bytes,
    cpu_limit,
    cpus_near,
    host_bytes,
    last_level_bytes,
    lock_limit_bytes,
    memory_limit_bytes,
    shared_memory_bytes,
)
from pyxfer._machine.numa import bind, device_node, farthest_node, read_nodes, verify_pages
from pyxfer._machine.nvml import Nvml
from pyxfer._machine.sysfs import format_cpu_list, parse_cpu_list, read_cpu_list, read_int, read_text

MEMINFO = "MemTotal:       1000000 kB\nMemFree:         1 kB\nMemAvailable:    800000 kB\n"
V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/memory"


def test_the_largest_cache_is_the_last_level(tmp_path: Path) -> None:
    assert last_level_bytes(tmp_path) == 0
    caches = "sys/devices/system/cpu/cpu0/cache"
    write(tmp_path, **{f"{caches}/index0/size": "48K", f"{caches}/index3/size": "32M", f"{caches}/index4/size": "odd"})
    assert last_level_bytes(tmp_path) == 32 << 20


@pytest.mark.parametrize(
    ("groups", "files", "available"),
    [
        pytest.param(
            "0::/box\n",
            {f"{V2}/box/memory.max": "5000000", f"{V2}/box/memory.current": "3000000", f"{V2}/memory.max": "max"},
            2_000_000,
            id="a version 2 group",
        ),
        pytest.param(
            "0::/\n",
            {
                f"{V2}/memory.max": "5000000",
                f"{V2}/memory.current": "3000000",
                f"{V2}/memory.stat": "anon 1\ninactive_file 500000\nactive_file 9\n",
            },
            2_500_000,
            id="inactive file pages are available",
        ),
        pytest.param(
            "0::/outer/inner\n",
            {
                f"{V2}/outer/inner/memory.max": "9000000",
                f"{V2}/outer/inner/memory.current": "0",
                f"{V2}/outer/memory.max": "4000000",
                f"{V2}/outer/memory.current": "1000000",
            },
            3_000_000,
            id="a parent group",
        ),
        pytest.param(
            "5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n",
            {
                f"{V1}/docker/abc/memory.limit_in_bytes": "6000000",
                f"{V1}/docker/abc/memory.usage_in_bytes": "2000000",
                f"{V1}/docker/abc/memory.stat": "inactive_file 7\ntotal_inactive_file 1000000\n",
            },
            5_000_000,
            id="a version 1 group",
        ),
        pytest.param(
            "4:memory:/docker/abc\n",
            {f"{V1}/memory.limit_in_bytes": "6000000", f"{V1}/memory.usage_in_bytes": "1"},
            5_999_999,
            id="a path of the host is read at the mount point",
        ),
        pytest.param("0::/\n", {}, 800_000 * 1024, id="no limit"),
        pytest.param(
            "4:memory:/\n",
            {f"{V1}/memory.limit_in_bytes": "9223372036854771712", f"{V1}/memory.usage_in_bytes": "99"},
            800_000 * 1024,
            id="the largest limit of version 1 is none",
        ),
        pytest.param(
            "0::/\n",
            {f"{V2}/memory.max": "9000000000000", f"{V2}/memory.current": "0"},
            800_000 * 1024,
            id="more than the machine has",
        ),
    ],
)
def test_the_limit_of_a_control_group_less_its_use_is_available(
    tmp_path: Path, groups: str, files: dict[str, str], available: int
) -> None:
    write(tmp_path, **{"proc/meminfo": MEMINFO, "proc/self/cgroup": groups, **files})
    assert available_host_bytes(tmp_path).value == available
    if available == 800_000 * 1024:
        assert host_bytes(tmp_path).value == 1_000_000 * 1024


def test_missing_meminfo_gives_a_reason(tmp_path: Path) -> None:
    reason = available_host_bytes(tmp_path).reason or ""
    assert all(words in reason for words in (f"{tmp_path}/proc/meminfo", "No such file or directory"))


GIB = 1 << 30
GROUPS_V2 = "0::/kubepods/pod7/main\n"
GROUPS_V1 = "4:memory:/docker/77\n3:cpu,cpuacct:/docker/77\n0::/\n"


def test_the_lock_limit_is_the_soft_limit_of_this_process() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    assert lock_limit_bytes() == Fact(Bound(None if soft == resource.RLIM_INFINITY else float(soft)))


def test_the_memory_limit_is_the_least_of_a_group_and_its_parents(tmp_path: Path) -> None:
    write(tmp_path, proc__self__cgroup=GROUPS_V2)
    for name, limit in (("kubepods", 8 * GIB), ("kubepods__pod7", 2 * GIB), ("kubepods__pod7__main", "max")):
        write(tmp_path, **{f"sys__fs__cgroup__{name}__memory.max": f"{limit}\n"})
    assert memory_limit_bytes(tmp_path) == Fact(Bound(2 * GIB))


@pytest.mark.parametrize(("text", "most"), [("max 100000\n", None), ("150000 100000\n", 1.5), ("150000 0\n", None)])
def test_cpu_limit_of_control_groups_version_2(text: str, most: float | None, tmp_path: Path) -> None:
    write(tmp_path, proc__self__cgroup=GROUPS_V2, **{"sys__fs__cgroup__kubepods__pod7__cpu.max": text})
    assert cpu_limit(tmp_path) == Fact(Bound(most))


@pytest.mark.parametrize(("quota", "most"), [("-1", None), ("400000", 4.0)])
def test_cpu_limit_of_control_groups_version_1(quota: str, most: float | None, tmp_path: Path) -> None:
    group = "sys__fs__cgroup__cpu__docker__77__cpu.cfs_"
    write(tmp_path, proc__self__cgroup=GROUPS_V1, **{f"{group}quota_us": quota, f"{group}period_us": "100000"})
    assert cpu_limit(tmp_path) == Fact(Bound(most))


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert cpu_limit(tmp_path) == memory_limit_bytes(tmp_path) == Fact(Bound())


def test_cpus_near_a_node_are_those_allowed_to_this_process(tmp_path: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    write(tmp_path, sys__devices__system__node__online="0-1\n")
    write(tmp_path, sys__devices__system__node__node0__cpulist=",".join(map(str, mine)))
    write(tmp_path, sys__devices__system__node__node1__cpulist="4095\n")
    assert cpus_near(Fact(0), tmp_path) == Fact(len(mine))
    assert cpus_near(Fact(1), tmp_path) == Fact(0)
    assert cpus_near(unknown("no node"), tmp_path).reason == "no node"


def test_shared_memory_is_the_size_of_its_file_system(tmp_path: Path) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)
    assert (shared_memory_bytes(tmp_path).value or 0) > 0
    assert shared_memory_bytes(tmp_path / "nowhere").value is None


def answering(**values: int) -> Nvml:
    """NVML with these numbered field values, each an unsigned integer."""
    known = {int(name.removeprefix("value_")): number for name, number in values.items()}

    def ask(_handle: object, numbers: list[int]) -> list[Any]:
        value = known.get(numbers[0])
        return [SimpleNamespace(nvmlReturn=3 if value is None else 0, valueType=1, value=SimpleNamespace(uiVal=value))]

    return nvml(nvmlDeviceGetFieldValues=ask, nvmlErrorString=b"Not Supported", nvmlDeviceGetPcieReplayCounter=7)


def test_counters_are_read_by_their_field_numbers() -> None:
    found = read_counters(answering(value_95=1, value_173=2, value_179=3, value_180=4), gpu(pci=None))
    read = (found.replays, found.replay_rollovers, found.correctable, found.nonfatal, found.fatal)
    assert [fact.value for fact in read] == [7, 1, 2, 3, 4]


def test_an_unsupported_counter_has_the_reason_of_nvml() -> None:
    found = read_counters(answering(), gpu(pci=None))
    assert all(words in (found.fatal.reason or "") for words in ("nvmlDeviceGetFieldValues", "180", "Not Supported"))


def test_a_value_that_is_not_an_integer_is_refused() -> None:
    odd = nvml(nvmlDeviceGetFieldValues=[SimpleNamespace(nvmlReturn=0, valueType=0, value=SimpleNamespace(dVal=1.5))])
    assert read_counters(odd, gpu(pci=None)).fatal.value is None


@pytest.mark.parametrize(("rows", "pending", "failed"), [((0, 0, 0, 0), False, False), ((1, 2, 1, 1), True, True)])
def test_memory_errors_and_remapped_rows_are_read(rows: tuple[int, ...], pending: bool, failed: bool) -> None:
    found = read_device_memory(nvml(nvmlDeviceGetRemappedRows=rows, nvmlDeviceGetTotalEccErrors=5), gpu())
    assert (found.uncorrected.value, found.remap_pending.value, found.remap_failed.value) == (5, pending, failed)


ROOT_PORT = "0000:3a:00.0"
EXTENDED_BYTES = 4096
CORRECTABLE = "RxErr 1\nBadTLP 2\nTOTAL_ERR_COR 3\n"


def extended(access_control: int | None, payload_most: int = 512) -> bytes:
    """Extended configuration space with Access Control Services after another capability."""
    config = bytearray(config_space()) + bytearray(EXTENDED_BYTES - 256)
    config[0x64:0x68] = (payload_most.bit_length() - 8).to_bytes(4, "little")
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x200 << 20).to_bytes(4, "little")
    if access_control is not None:
        config[0x200:0x204] = (0x000D | 1 << 16).to_bytes(4, "little")
        config[0x206:0x208] = access_control.to_bytes(2, "little")
    return bytes(config)


def with_ports(root: Path, **configs: bytes) -> Path:
    """Two ports with these configuration spaces; the folder of the device."""
    folder = make_path(root, Port(ROOT_PORT), Port(GPU))
    for name, config in configs.items():
        (folder if name == "gpu" else folder.parent).joinpath("config").write_bytes(config)
    return folder


def test_ports_are_the_device_and_all_ports_above_it(tmp_path: Path) -> None:
    with_ports(tmp_path, gpu=extended(None), port=extended(0x1D, payload_most=256))
    device, above = read_ports(gpu(), tmp_path)
    assert (device.pci, above.pci) == (GPU, ROOT_PORT)
    assert (device.max_payload_bytes.value, device.max_payload_most_bytes.value) == (256, 512)
    assert above.max_payload_most_bytes.value == 256


@pytest.mark.parametrize(
    ("control", "redirects"), [(None, False), (0x00, False), (0x01, False), (0x04, True), (0x08, True), (0x1D, True)]
)
def test_redirection_is_one_of_two_bits_of_access_control(control: int | None, redirects: bool, tmp_path: Path) -> None:
    with_ports(tmp_path, gpu=extended(None), port=extended(control))
    assert read_ports(gpu(), tmp_path)[1].redirects.value is redirects


def test_fields_that_only_root_can_read_have_a_reason(tmp_path: Path) -> None:
    with_ports(tmp_path, gpu=config_space()[:64], port=config_space())
    device, above = read_ports(gpu(), tmp_path)
    assert "root" in (device.max_payload_bytes.reason or "")
    assert "root" in (above.redirects.reason or "")
    assert above.max_payload_most_bytes.value == 128


def test_a_reserved_size_or_a_circular_list_gives_a_reason(tmp_path: Path) -> None:
    config = bytearray(extended(None))
    config[0x64] = 7
    config[0x200:0x204] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    with_ports(tmp_path, gpu=bytes(config), port=extended(None))
    device, _ = read_ports(gpu(), tmp_path)
    assert "reserved" in (device.max_payload_most_bytes.reason or "")
    assert "in a circle" in (device.redirects.reason or "")


def test_errors_are_the_totals_of_each_port(tmp_path: Path) -> None:
    folder = with_ports(tmp_path)
    (folder / "aer_dev_correctable").write_text(CORRECTABLE)
    (folder / "aer_dev_nonfatal").write_text("Undefined 0\nTOTAL_ERR_NONFATAL 1\n")
    device, above = read_port_errors(gpu(), tmp_path)
    assert (device.correctable.value, device.nonfatal.value) == (3, 1)
    assert "aer_dev_fatal" in (device.fatal.reason or "")
    assert above.correctable.value is None


@pytest.mark.parametrize("text", ["RxErr 1\n", "TOTAL_ERR_COR many\n"])
def test_a_file_without_a_total_gives_a_reason(text: str, tmp_path: Path) -> None:
    (with_ports(tmp_path) / "aer_dev_correctable").write_text(text)
    correctable = read_port_errors(gpu(), tmp_path)[0].correctable
    assert correctable.value is None
    assert "aer_dev_correctable" in (correctable.reason or "")


@pytest.mark.parametrize(
    ("data", "read", "reason"),
    [
        (None, read_text, "/n cannot be read: No such file or directory"),
        (b"\n", read_text, "/n is empty"),
        (b"many\n", read_int, "'many'"),
        (b"all\n", read_cpu_list, "'all'"),
    ],
)
def test_a_file_that_says_nothing_gives_a_reason(
    data: bytes | None, read: Callable[[Path], Fact[Any]], reason: str, tmp_path: Path
) -> None:
    if data is not None:
        (tmp_path / "n").write_bytes(data)
    fact = read(tmp_path / "n")
    assert fact.value is None
    assert str(tmp_path) in (fact.reason or "")
    assert reason in (fact.reason or "")


def test_bytes_that_are_not_utf_8_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"ab\xff\0")
    assert read_text(tmp_path / "odd").value == "ab\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("text", ["0", "0-3", "0-3,8", "1,3,5-6", ""])
def test_cpu_lists_are_parsed_and_formatted(text: str) -> None:
    assert format_cpu_list(parse_cpu_list(text)) == text
    assert parse_cpu_list("0-2, 7") == {0, 1, 2, 7}


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
