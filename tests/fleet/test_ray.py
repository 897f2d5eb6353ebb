"""Host jobs on a real Ray cluster on this machine, whose nodes are simulated hosts."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import COMMAND, environment
from fleet.stand_ins import link_of
from fleet_samples import CELLS, make_host

from pyxfer._document import codec
from pyxfer._document.fleets import Fleet, HostReport
from pyxfer._fleet import launch, ray
from pyxfer._fleet.launch import Answer, HostJob
from pyxfer.errors import UsageError

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra fleet)")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_ray]

MEMORY = 80 << 20
# To start a worker process takes long on a busy machine.
QUEUE_S = 120.0
FAULTS: dict[str, dict[str, str]] = {
    "h0": link_of(2),
    "h1": {"PYXFER_HOSTRT": "link=1e9:1e-6:2e9:1e-6", "RACK": "b"},
    "h2": link_of(2),
}


def be_a_cluster(hosts: dict[str, dict[str, str]]) -> None:
    """Print the address of a new cluster, and kill the raylet of each host that a line on stdin names.

    Each raylet has one GPU, as it says.
    """
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "num_gpus": 0, "object_store_memory": MEMORY, "include_dashboard": False},
    )
    nodes = {
        name: cluster.add_node(
            num_cpus=1,
            num_gpus=1,
            labels={"pyxfer/host": name, "rack": variables.get("RACK", "a")},
            env_vars={"HOST": name, **variables},
            object_store_memory=MEMORY,
        )
        for name, variables in hosts.items()
    }
    print(json.dumps(cluster.address), flush=True)
    for line in sys.stdin:
        cluster.remove_node(nodes[line.strip()], allow_graceful=False)
        print(json.dumps("killed"), flush=True)
    cluster.shutdown()


class RayCluster:
    """A process with a cluster; each host has its variables."""

    def __init__(self, hosts: dict[str, dict[str, str]]) -> None:
        # Sockets have short paths.
        self._folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
        variables = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "CUDA_VISIBLE_DEVICES": "0"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(hosts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(**variables, RAY_TMPDIR=self._folder),
        )
        try:
            self.address: str = self._line()
        except BaseException:
            self.close()
            raise

    def kill(self, host: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{host}\n")
        self._process.stdin.flush()
        self._line()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _line(self) -> Any:
        """The next line that is JSON; Ray prints others."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('"'):
                return json.loads(line)
        raise AssertionError("the cluster did not start")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    made = RayCluster(FAULTS)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "cluster" in request.fixturenames:
        monkeypatch.setenv("RAY_ADDRESS", request.getfixturevalue("cluster").address)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))


def scripted(folder: Path, text: str) -> HostJob:
    """A job that does this in place of pyxfer; `$HOST` is the host, and `DOCUMENTS/$HOST.json` its document."""
    for host in FAULTS:
        (folder / f"{host}.json").write_bytes(codec.encode(make_host(host, dict(CELLS))))
    (folder / "job").write_text(f"#!/bin/sh\n{text.replace('DOCUMENTS', str(folder))}\n", encoding="utf-8")
    (folder / "job").chmod(0o755)
    return HostJob((str(folder / "job"),), budget_s=5.0)


def answers_of(launcher: ray.RayLauncher, act_when_running: Any = None) -> dict[str, Answer]:
    hosts = launcher.hosts
    launcher.start(hosts)
    found: dict[str, Answer] = {}
    until = time.monotonic() + 240
    while len(found) < len(hosts):
        assert time.monotonic() < until
        found.update({answer.host: answer for answer in launcher.poll(0.1)})
        if act_when_running is not None and launcher.running + len(found) == len(hosts):
            act_when_running()
            act_when_running = None
    return found


def test_the_right_host_the_right_cell_and_its_labels(cluster: RayCluster, tmp_path: Path) -> None:
    # test_run_command.py confirms a loss. Here another round would show the same.
    hosts = ("--hosts", "h0,h1,h2", "--device", "host", "--budget", "60s", "--wait", "2min", "--no-confirm")
    ended = subprocess.run(
        [*COMMAND, "fleet", "run", "--via", "ray", *hosts, "--output-folder", str(tmp_path / "out")],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stderr
    judged = Fleet.load(tmp_path / "out/fleet.json")
    # On a busy machine the slow link takes longer than the budget for the last cells.
    assert {host.host: host.state in ("measured", "incomplete") for host in judged.hosts} == dict.fromkeys(FAULTS, True)
    assert judged.host("h1").verdict == "suspect"
    # Copies of pinned memory take the modelled time. Others depend on what else this machine does.
    losses = {
        (host.host, loss.cell.text): loss
        for host in judged.hosts
        for loss in host.losses
        if loss.cell.is_alone and loss.cell.memory == "pinned"
    }
    assert list(losses) == [("h1", "h2d:gpu0:pinned:16MiB")]
    (found,) = losses.values()
    assert found.stated == pytest.approx(0.5, abs=0.02)
    assert HostReport.load(tmp_path / "out/hosts/h1.json").labels["rack"] == "b"


def test_a_host_that_hangs_is_late(cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "START_S", 0.0)
    job = scripted(tmp_path, 'if [ "$HOST" = h1 ]; then exec sleep 60; fi; cat "DOCUMENTS/$HOST.json"')
    launcher = ray.ray_launcher(job, [], QUEUE_S)
    try:
        rows = {host: answer.arrival("ray").state for host, answer in answers_of(launcher).items()}
        assert rows == {"h0": "measured", "h1": "late", "h2": "measured"}
    finally:
        launcher.stop()


def test_hosts_that_send_rubbish_or_too_much_are_rows(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "MAX_HOST_BYTES", 1 << 20)
    text = 'case $HOST in h0) echo "{";; h1) exec cat /dev/zero;; *) echo gone >&2; exit 4;; esac'
    launcher = ray.ray_launcher(scripted(tmp_path, text), [], QUEUE_S)
    try:
        rows = {host: answer.arrival("ray") for host, answer in answers_of(launcher).items()}
        assert {host: row.state for host, row in rows.items()} == {"h0": "unreadable", "h1": "failed", "h2": "failed"}
        assert "exit code 4: gone" in (rows["h2"].reason or "")
    finally:
        launcher.stop()


def test_a_host_whose_gpus_are_taken_is_busy(cluster: RayCluster, tmp_path: Path) -> None:
    holding = ray.ray_launcher(scripted(tmp_path, "exec sleep 60"), ["h2"], QUEUE_S)
    try:
        holding.start(["h2"])
        while not holding.running:
            holding.poll(0.1)
        (tmp_path / "other").mkdir()
        other = scripted(tmp_path / "other", 'cat "DOCUMENTS/$HOST.json"')
        launcher = ray.ray_launcher(other, ["h2"], queue_s=5.0)
        try:
            assert answers_of(launcher)["h2"].state == "busy"
        finally:
            launcher.stop()
    finally:
        holding.stop()


def test_hosts_whose_raylet_or_cluster_goes_away_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In a cluster of its own: the other tests, in any order, need all nodes of theirs.
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "2")
    made = RayCluster({"h0": {}, "h1": {}})
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    hanging = 'if [ "$HOST" = h0 ]; then exec sleep 60; fi; cat "DOCUMENTS/$HOST.json"'
    launcher = ray.ray_launcher(scripted(tmp_path, hanging), [], QUEUE_S)
    try:
        found = answers_of(launcher, lambda: made.kill("h0"))
        assert {host: answer.state for host, answer in found.items()} == {"h0": "lost", "h1": "answered"}
    finally:
        launcher.stop()
    launcher = ray.ray_launcher(scripted(tmp_path, "exec sleep 60"), ["h1"], QUEUE_S)
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "10")
    waiting = ray.ray_launcher(scripted(tmp_path, "exec sleep 60"), ["h1"], queue_s=1.0)
    try:
        assert answers_of(launcher, made.close)["h1"].state == "lost"
        answer = answers_of(waiting)["h1"]
        assert (answer.state, "GCS" in (answer.reason or "")) == ("lost", True)
    finally:
        launcher.stop()
        waiting.stop()


def test_without_a_cluster_it_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setattr(ray, "JOIN_S", 2.0)
    with pytest.raises(UsageError, match="Ray gives no hosts"):
        ray.ray_launcher(HostJob(), [])


if __name__ == "__main__":
    be_a_cluster(json.loads(sys.argv[1]))
