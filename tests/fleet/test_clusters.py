"""Fleets on a real Slurm and a real sshd, on the loopback of this machine. `tools/check cluster` runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from command_line import COMMAND
from fleet import clusters
from fleet.clusters import Daemons, Slurm, Sshd, is_running, wait_until
from fleet.stand_ins import link_of
from fleet_samples import CELLS, later, make_host, make_hosts

from pyxfer._document import codec
from pyxfer._document.fleets import Fleet, HostReport

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(clusters.missing()), reason=clusters.missing() or "all is here"),
]
FLEET_PAGE = Path(__file__).resolve().parents[2] / "docs/fleet.md"
SLOW = {**CELLS, "h2d:gpu0:pinned:256MiB": 20.0}
# To Slurm these are every node, a set of nodes, the settings of nodes, ranges, lists, options, or no node.
HOSTILE = (
    *("ALL", "all", "All", "everything", "DEFAULT", "default", "c[1-3]", "c[1,3]", "c1,c3", "c1 c3", "c1;c3", "C1"),
    *("-f", "--all", "c*", "c1/c3", "{c1}", "@c1", "c1\\nc3", "state=up", "c", "1-3"),
)


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
