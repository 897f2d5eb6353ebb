from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from machine.fake_host import write

from pyxfer._document.examinations import Bound
from pyxfer._document.runs import Fact, unknown
from pyxfer._machine.host import cpu_limit, cpus_near, lock_limit_bytes, memory_limit_bytes, shared_memory_bytes

GIB = 1 << 30
V2 = "0::/kubepods/pod7/main\n"
V1 = "4:memory:/docker/77\n3:cpu,cpuacct:/docker/77\n0::/\n"


def test_the_lock_limit_is_the_soft_limit_of_this_process() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    assert lock_limit_bytes() == Fact(Bound(None if soft == resource.RLIM_INFINITY else float(soft)))


def test_the_memory_limit_is_the_least_of_a_group_and_its_parents(tmp_path: Path) -> None:
    write(tmp_path, proc__self__cgroup=V2)
    for name, limit in (("kubepods", 8 * GIB), ("kubepods__pod7", 2 * GIB), ("kubepods__pod7__main", "max")):
        write(tmp_path, **{f"sys__fs__cgroup__{name}__memory.max": f"{limit}\n"})
    assert memory_limit_bytes(tmp_path) == Fact(Bound(2 * GIB))


@pytest.mark.parametrize(("text", "most"), [("max 100000\n", None), ("150000 100000\n", 1.5), ("150000 0\n", None)])
def test_cpu_limit_of_control_groups_version_2(text: str, most: float | None, tmp_path: Path) -> None:
    write(tmp_path, proc__self__cgroup=V2, **{"sys__fs__cgroup__kubepods__pod7__cpu.max": text})
    assert cpu_limit(tmp_path) == Fact(Bound(most))


@pytest.mark.parametrize(("quota", "most"), [("-1", None), ("400000", 4.0)])
def test_cpu_limit_of_control_groups_version_1(quota: str, most: float | None, tmp_path: Path) -> None:
    group = "sys__fs__cgroup__cpu__docker__77__cpu.cfs_"
    write(tmp_path, proc__self__cgroup=V1, **{f"{group}quota_us": quota, f"{group}period_us": "100000"})
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
