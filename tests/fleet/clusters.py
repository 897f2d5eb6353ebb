"""A real sshd, and a real Slurm with munge, slurmctld and slurmd, on the loopback of this machine. They need root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PROGRAMS = ("sshd", "ssh-keygen", "munged", "slurmctld", "slurmd", "srun", "salloc", "scontrol")
NODES = ("c1", "c2", "c3")
LONG_S = 60.0
PATH = f"/usr/sbin:/usr/local/sbin:{os.environ['PATH']}"


def missing() -> str:
    """Why these tests cannot run; empty if they can."""
    absent = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
    if absent:
        return f"{', '.join(absent)} not installed (apt-get install slurm-wlm munge openssh-server)"
    return "" if os.geteuid() == 0 else "slurmd and sshd need root"


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


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
