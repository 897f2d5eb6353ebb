from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from machine.fake_host import write

from pyxfer._document.examinations import Bound
from pyxfer._document.runs import Fact, unknown
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

MEMINFO = "MemTotal:       1000000 kB\nMemFree:         1 kB\nMemAvailable:    800000 kB\n"
V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/memory"


def machine(root: Path, groups: str, **files: str) -> Path:
    write(root, **{"proc/meminfo": MEMINFO, "proc/self/cgroup": groups, **files})
    return root


def test_the_largest_cache_is_the_last_level(tmp_path: Path) -> None:
    assert last_level_bytes(tmp_path) == 0
    caches = "sys/devices/system/cpu/cpu0/cache"
    write(tmp_path, **{f"{caches}/index0/size": "48K", f"{caches}/index3/size": "32M", f"{caches}/index4/size": "odd"})
    assert last_level_bytes(tmp_path) == 32 << 20


def test_machine_without_limits_has_the_figures_of_the_kernel(tmp_path: Path) -> None:
    machine(tmp_path, "0::/\n")
    assert host_bytes(tmp_path).value == 1_000_000 * 1024
    assert available_host_bytes(tmp_path).value == 800_000 * 1024


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
    ],
)
def test_the_limit_of_a_control_group_less_its_use_is_available(
    tmp_path: Path, groups: str, files: dict[str, str], available: int
) -> None:
    machine(tmp_path, groups, **files)
    assert available_host_bytes(tmp_path).value == available


def test_the_memory_of_the_host_is_the_limit_of_its_group(tmp_path: Path) -> None:
    machine(tmp_path, "0::/box\n", **{f"{V2}/box/memory.max": "5000000", f"{V2}/memory.max": "max"})
    assert host_bytes(tmp_path).value == 5_000_000


def test_the_largest_version_1_limit_means_no_limit(tmp_path: Path) -> None:
    machine(
        tmp_path,
        "4:memory:/\n",
        **{f"{V1}/memory.limit_in_bytes": "9223372036854771712", f"{V1}/memory.usage_in_bytes": "99"},
    )
    assert host_bytes(tmp_path).value == 1_000_000 * 1024


def test_group_over_its_limit_has_nothing_available(tmp_path: Path) -> None:
    machine(tmp_path, "0::/\n", **{f"{V2}/memory.max": "10", f"{V2}/memory.current": "12"})
    assert available_host_bytes(tmp_path).value == 0


def test_limit_above_the_memory_of_the_machine_is_ignored(tmp_path: Path) -> None:
    machine(tmp_path, "0::/\n", **{f"{V2}/memory.max": "9000000000000", f"{V2}/memory.current": "0"})
    assert available_host_bytes(tmp_path).value == 800_000 * 1024


def test_missing_meminfo_gives_a_reason(tmp_path: Path) -> None:
    reason = available_host_bytes(tmp_path).reason or ""
    assert all(words in reason for words in (f"{tmp_path}/proc/meminfo", "No such file or directory"))


def test_meminfo_without_memavailable_gives_a_reason(tmp_path: Path) -> None:
    write(tmp_path, proc__meminfo="MemFree: 1 kB\n")
    assert "MemAvailable" in (available_host_bytes(tmp_path).reason or "")


def test_this_machine_has_memory() -> None:
    available, total = available_host_bytes().value, host_bytes().value
    assert available is not None
    assert total is not None
    assert 1 << 20 < available <= total


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
