from __future__ import annotations

from pathlib import Path

from machine.fake_host import write

from pyxfer._machine.host import available_host_bytes, host_bytes

MEMINFO = "MemTotal:       1000000 kB\nMemFree:         1 kB\nMemAvailable:    800000 kB\n"
V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/memory"


def machine(root: Path, groups: str, **files: str) -> Path:
    write(root, **{"proc/meminfo": MEMINFO, "proc/self/cgroup": groups, **files})
    return root


def test_machine_without_limits_has_what_the_kernel_says(tmp_path: Path) -> None:
    machine(tmp_path, "0::/\n")
    assert host_bytes(tmp_path).value == 1_000_000 * 1024
    assert available_host_bytes(tmp_path).value == 800_000 * 1024


def test_group_of_version_2_limits_less_what_it_uses(tmp_path: Path) -> None:
    machine(
        tmp_path,
        "0::/box\n",
        **{f"{V2}/box/memory.max": "5000000", f"{V2}/box/memory.current": "3000000", f"{V2}/memory.max": "max"},
    )
    assert host_bytes(tmp_path).value == 5_000_000
    assert available_host_bytes(tmp_path).value == 2_000_000


def test_file_pages_that_can_be_given_up_are_available(tmp_path: Path) -> None:
    machine(
        tmp_path,
        "0::/\n",
        **{
            f"{V2}/memory.max": "5000000",
            f"{V2}/memory.current": "3000000",
            f"{V2}/memory.stat": "anon 1\ninactive_file 500000\nactive_file 9\n",
        },
    )
    assert available_host_bytes(tmp_path).value == 2_500_000


def test_limit_of_a_group_above_counts(tmp_path: Path) -> None:
    machine(
        tmp_path,
        "0::/outer/inner\n",
        **{
            f"{V2}/outer/inner/memory.max": "9000000",
            f"{V2}/outer/inner/memory.current": "0",
            f"{V2}/outer/memory.max": "4000000",
            f"{V2}/outer/memory.current": "1000000",
        },
    )
    assert available_host_bytes(tmp_path).value == 3_000_000


def test_group_of_version_1_limits(tmp_path: Path) -> None:
    machine(
        tmp_path,
        "5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n",
        **{
            f"{V1}/docker/abc/memory.limit_in_bytes": "6000000",
            f"{V1}/docker/abc/memory.usage_in_bytes": "2000000",
            f"{V1}/docker/abc/memory.stat": "inactive_file 7\ntotal_inactive_file 1000000\n",
        },
    )
    assert available_host_bytes(tmp_path).value == 5_000_000


def test_group_named_as_the_machine_outside_sees_it_is_read_at_its_mount(tmp_path: Path) -> None:
    machine(
        tmp_path,
        "4:memory:/docker/abc\n",
        **{f"{V1}/memory.limit_in_bytes": "6000000", f"{V1}/memory.usage_in_bytes": "1"},
    )
    assert available_host_bytes(tmp_path).value == 5_999_999


def test_the_number_that_stands_for_no_limit_is_none(tmp_path: Path) -> None:
    machine(
        tmp_path,
        "4:memory:/\n",
        **{f"{V1}/memory.limit_in_bytes": "9223372036854771712", f"{V1}/memory.usage_in_bytes": "99"},
    )
    assert host_bytes(tmp_path).value == 1_000_000 * 1024


def test_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    machine(tmp_path, "0::/\n", **{f"{V2}/memory.max": "10", f"{V2}/memory.current": "12"})
    assert available_host_bytes(tmp_path).value == 0


def test_limit_above_the_machine_changes_nothing(tmp_path: Path) -> None:
    machine(tmp_path, "0::/\n", **{f"{V2}/memory.max": "9000000000000", f"{V2}/memory.current": "0"})
    assert available_host_bytes(tmp_path).value == 800_000 * 1024


def test_missing_meminfo_is_a_reason(tmp_path: Path) -> None:
    reason = f"{tmp_path}/proc/meminfo cannot be read: No such file or directory"
    assert available_host_bytes(tmp_path).reason == reason


def test_meminfo_without_the_line_is_a_reason(tmp_path: Path) -> None:
    write(tmp_path, proc__meminfo="MemFree: 1 kB\n")
    assert available_host_bytes(tmp_path).reason == f"{tmp_path}/proc/meminfo has no line MemAvailable"


def test_this_machine_has_memory() -> None:
    available, total = available_host_bytes().value, host_bytes().value
    assert available is not None
    assert total is not None
    assert 1 << 20 < available <= total
