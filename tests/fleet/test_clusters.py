"""Fleets on a real sshd and a real Slurm with munge, slurmctld and slurmd, on the loopback of this machine.

They need root. `tools/check cluster` runs them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from command_line import COMMAND, is_running
from fleet.stand_ins import link_of
from fleet_samples import CELLS, later, make_host, make_hosts

from pyxfer._document import codec
from pyxfer._document.fleets import Fleet, HostReport

PROGRAMS = ("sshd", "ssh-keygen", "munged", "slurmctld", "slurmd", "srun", "salloc", "scontrol")
NODES = ("c1", "c2", "c3")
LONG_S = 60.0
PATH = f"/usr/sbin:/usr/local/sbin:{os.environ['PATH']}"
FLEET_PAGE = Path(__file__).resolve().parents[2] / "docs/fleet.md"
SLOW = {**CELLS, "h2d:gpu0:pinned:256MiB": 20.0}
# To Slurm these are every node, a set of nodes, the settings of nodes, ranges, lists, options, or no node.
HOSTILE = (
    *("ALL", "all", "All", "everything", "DEFAULT", "default", "c[1-3]", "c[1,3]", "c1,c3", "c1 c3", "c1;c3", "C1"),
    *("-f", "--all", "c*", "c1/c3", "{c1}", "@c1", "c1\\nc3", "state=up", "c", "1-3"),
)


def missing() -> str:
    """Why these tests cannot run; empty if they can."""
    absent = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
    if absent:
        return f"{', '.join(absent)} not installed (apt-get install slurm-wlm munge openssh-server)"
    return "" if os.geteuid() == 0 else "slurmd and sshd need root"


pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=missing() or "all is here"),
]


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Daemons:
    """Daemons in the foreground, in a folder of their own, which end with the block. `bin` is the first of the PATH."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pyxfer", dir="/tmp"))  # sockets have short paths
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self._started: list[subprocess.Popen[bytes]] = []
        self.variables = {
            "PATH": f"{self.bin}:{PATH}",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "CUDA_VISIBLE_DEVICES": "",
        }
        self.script("pyxfer", f'exec {sys.executable} -m pyxfer "$@"')

    def script(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def start(self, *command: str, **variables: str) -> None:
        with open(self.folder / "log", "ab") as log:
            self._started.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **self.variables, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def close(self) -> None:
        for process in reversed(self._started):
            process.terminate()
        for process in self._started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Sshd(Daemons):
    """Hosts of one sshd. Each has its variables; `ssh` on the PATH is the real one with a configuration of its own."""

    def __init__(self, hosts: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__()
        port, keys = free_port(), self.folder
        for name in ("host", "user"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
            subprocess.run(command, check=True, env={**os.environ, "PATH": PATH})
        Path("/run/sshd").mkdir(exist_ok=True)
        variables = " ".join(f'"{name}={value}"' for name, value in self.variables.items())
        (keys / "sshd").write_text(
            f"ListenAddress 127.0.0.1:{port}\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/user.pub\nStrictModes no\n"
            f"UsePAM no\nPidFile none\nPermitRootLogin yes\nMaxStartups 100\nAcceptEnv PYXFER_* HOST\n"
            f"SetEnv {variables}\n"
        )
        own = "".join(
            f"Host {host}\nSetEnv HOST={host} {' '.join(f'{name}={value}' for name, value in given.items())}\n"
            for host, given in hosts.items()
        )
        (keys / "ssh").write_text(
            f"{own}Host *\nHostName 127.0.0.1\nPort {port}\nUser root\nIdentityFile {keys}/user\nIdentitiesOnly yes\n"
            f"UserKnownHostsFile {keys}/known\nStrictHostKeyChecking accept-new\n"
        )
        self.script("ssh", f'exec {shutil.which("ssh", path=PATH)} -F {keys}/ssh "$@"')
        self.start(str(shutil.which("sshd", path=PATH)), "-D", "-e", "-f", str(keys / "sshd"))
        wait_until(lambda: answers(port), "sshd does not answer")


class Slurm(Daemons):
    """A cluster of `NODES`, each with a slurmd."""

    def __init__(self) -> None:
        super().__init__()
        folder = self.folder
        folder.chmod(0o755)
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o400)
        munge = [f"--socket={folder}/munge", f"--key-file={folder}/key", f"--pid-file={folder}/munge.pid"]
        munge += [f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed", "--foreground", "--force"]
        self.start("munged", *munge)
        wait_until((folder / "munge").exists, "munged does not start")
        ports = {node: free_port() for node in NODES}
        nodes = "".join(
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=1 State=UNKNOWN\n"
            for node, port in ports.items()
        )
        (folder / "slurm.conf").write_text(
            f"ClusterName=tests\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={free_port()}\nSlurmUser=root\n"
            f"AuthType=auth/munge\nAuthInfo=socket={folder}/munge\nCredType=cred/munge\nProctrackType=proctrack/linuxproc\n"
            f"TaskPlugin=task/none\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\n"
            f"SlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/slurmd-%n.pid\nReturnToService=2\nMpiDefault=none\n"
            f"SelectType=select/linear\nSwitchType=switch/none\nKillWait=2\nTreeWidth=1\nSlurmdParameters=config_overrides\n"
            f"{nodes}NodeSet=everything Nodes={','.join(NODES)}\n"
            f"PartitionName=all Nodes={','.join(NODES)} Default=YES\n"
        )
        self.variables["SLURM_CONF"] = str(folder / "slurm.conf")
        self.start("slurmctld", "-D")
        for node in NODES:
            self.start("slurmd", "-D", "-N", node)
        wait_until(lambda: self.states() == dict.fromkeys(NODES, "idle"), "the nodes are not idle")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=LONG_S,
        )

    def states(self) -> dict[str, str]:
        """The state of each node in the words of sinfo, such as idle or drained."""
        listed = self.run("sinfo", "--noheader", "--Node", "--format=%N %T").stdout
        return dict(line.rstrip("*").split() for line in listed.splitlines())


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    made = Slurm()
    yield made
    made.close()


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    made = Sshd({name: link_of(2) for name in ("n0", "n1", "n2")})
    yield made
    made.close()


def fleet_run(daemons: Daemons, out: Path, *more: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    arguments = ("fleet", "run", "--output-folder", str(out), "--budget", "5s", "--no-confirm", "--quiet", *more)
    return subprocess.Popen(
        [*before, *COMMAND, *arguments],
        env={**os.environ, **daemons.variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows_of(process: subprocess.Popen[str], out: Path) -> dict[str, tuple[str, str]]:
    """The state of each host and its reason."""
    _, said = process.communicate(timeout=200)
    assert (out / "fleet.json").exists(), said
    return {host.host: (host.state, host.reason or "") for host in Fleet.load(out / "fleet.json").hosts}


def drain_as_documented(slurm: Slurm, documents: Path) -> str:
    (block,) = re.findall(r"^pyxfer fleet judge \S+ --export-drain .*?^done$", FLEET_PAGE.read_text(), re.S | re.M)
    return slurm.run("bash", "-c", block.replace("/shared/pyxfer", str(documents))).stderr


def put(folder: Path, name: str, report: HostReport) -> None:
    """The documents of a slow host that was measured again, under this name."""
    file = name.replace("/", "_")
    environment = report.environment
    assert environment is not None
    named = msgspec.structs.replace(report, environment=msgspec.structs.replace(environment, host=name))
    (folder / f"{file}.json").write_bytes(codec.encode(named))
    (folder / "confirmations" / f"{file}.json").write_bytes(codec.encode(later(named)))


def test_only_nodes_that_are_slow_are_drained_whatever_hosts_call_themselves(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "confirmations").mkdir()
    for number, report in enumerate(make_hosts(200)):
        put(tmp_path, f"fine-{number}", report)
    for name in HOSTILE:
        put(tmp_path, name, make_host(name, SLOW))
    put(tmp_path, "c2", make_host("c2", SLOW))
    said = drain_as_documented(slurm, tmp_path)
    assert slurm.states() == {"c1": "idle", "c2": "drained", "c3": "idle"}, said
    assert "cannot be drained" in said
    slurm.run("scontrol", "update", "NodeName=c2", "State=RESUME")
    # What the names would have done without any check. It shows that they are hostile.
    for name in ("all", "everything", "c[1-3]"):
        slurm.run("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=test")
        assert set(slurm.states().values()) == {"drained"}
        slurm.run("scontrol", "update", "NodeName=c[1-3]", "State=RESUME")


def test_steps_of_an_allocation(slurm: Slurm, tmp_path: Path) -> None:
    document = tmp_path / "document.json"
    document.write_bytes(codec.encode(make_host("any")))
    job = slurm.script(
        "job", f'case $SLURMD_NODENAME in c1) kill -9 $$;; c2) echo gone >&2; exit 4;; esac; cat "{document}"'
    )
    allocation = ("salloc", "--nodes=3", "--exclusive", "--quiet")
    rows = rows_of(fleet_run(slurm, tmp_path / "out", "--pyxfer", str(job), before=allocation), tmp_path / "out")
    assert {host: state for host, (state, _) in rows.items()} == {"c1": "failed", "c2": "failed", "c3": "measured"}
    assert "killed" in rows["c1"][1]
    assert "exit code 4" in rows["c2"][1]
    rows = rows_of(fleet_run(slurm, tmp_path / "none", "--pyxfer", "/no/such", before=allocation), tmp_path / "none")
    assert all(state == "failed" and "--pyxfer" in reason for state, reason in rows.values())


def test_hosts_over_ssh(sshd: Sshd, tmp_path: Path) -> None:
    (sshd.folder / "document").write_bytes(codec.encode(make_host("any")))
    # The parent of the parent is the shell of the session.
    killed = "case $HOST in n1) kill -9 $$;; n2) kill -9 $(ps -o ppid= -p $PPID); sleep 60;; esac"
    job = sshd.script("job", f'{killed}; cat "{sshd.folder}/document"')
    arguments = ("--via", "ssh", "--hosts", "n0,n1,n2", "--pyxfer", str(job))
    rows = rows_of(fleet_run(sshd, tmp_path / "out", *arguments), tmp_path / "out")
    assert {host: state for host, (state, _) in rows.items()} == {"n0": "measured", "n1": "failed", "n2": "failed"}
    assert "out of memory" in rows["n1"][1]
    assert "session" in rows["n2"][1]
    more = ("--via", "ssh", "--hosts", "n0", "--pyxfer", "/no/such")
    assert "--pyxfer" in rows_of(fleet_run(sshd, tmp_path / "none", *more), tmp_path / "none")["n0"][1]


def test_the_job_itself_over_ssh(sshd: Sshd, tmp_path: Path) -> None:
    process = fleet_run(sshd, tmp_path / "out", "--via", "ssh", "--hosts", "n0", "--device", "host", "--budget", "20s")
    state, reason = rows_of(process, tmp_path / "out")["n0"]
    assert state in ("measured", "incomplete"), reason  # a busy machine may take longer than the budget


# None: the job is late.
@pytest.mark.parametrize("job", ["sleep 600", "trap '' TERM; while :; do sleep 0.1; done"])
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, None])
def test_no_job_goes_on_over_ssh(ended_by: signal.Signals | None, job: str, sshd: Sshd, tmp_path: Path) -> None:
    program = sshd.script("hung", f"echo $$ >{tmp_path}/$HOST; {job}")
    hosts = ("n0", "n1")
    arguments = ("--via", "ssh", "--hosts", ",".join(hosts), "--pyxfer", str(program))
    process = fleet_run(sshd, tmp_path / "out", *arguments)
    wait_until(lambda: all((tmp_path / host).exists() for host in hosts), "the jobs do not begin")
    pids = [int((tmp_path / host).read_text()) for host in hosts]
    if ended_by is not None:
        process.send_signal(ended_by)
    process.communicate(timeout=200)
    if ended_by in (signal.SIGINT, signal.SIGTERM):
        assert process.returncode == 130
        assert not any(map(is_running, pids))  # so that a new run measures beside none
        assert json.loads((tmp_path / "out/fleet.json").read_text())["hosts"][0]["state"] == "late"
    wait_until(lambda: not any(map(is_running, pids)), "a job goes on")
