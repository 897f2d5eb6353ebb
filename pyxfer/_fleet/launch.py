"""Start the host job on many hosts by ssh or srun, and take what it writes. Each host answers within its time."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Literal, Protocol

from pyxfer._document.fleets import MAX_HOST_BYTES, HostState
from pyxfer._fleet.collect import Arrival, arrival_of
from pyxfer.errors import UsageError

MAX_ERROR_BYTES = 4096
START_S = 15.0
"""For the connection, the start of Python and of CUDA."""
GRACE_S = 2.0
_CHUNK = 1 << 16
_LONGEST_START = 80
_NOT_FOUND = 127
_KILLED = 128 + signal.SIGKILL
_NO_GPU = 3
_KILL_S = 2
_OWN_FILES = 64
"""Descriptors for everything but the pipes of hosts."""
_MAX_HOSTS = 20_000
_CONNECT_S = 10
_SSH_FAILED = 255
SLURM_JOB = "SLURM_JOB_ID"
_NODES = "SLURM_JOB_NODELIST"
_IMMEDIATE_S = 10
_SCONTROL_S = 30
_BUSY = ("nodes are busy", "step creation temporarily disabled", "unable to create step", "unable to allocate")
_LOST = ("node failure", "node_fail", "not responding", "socket timed out", "connection refused", "unreachable")
# Neither ssh nor Slurm has other names. Some of ssh's settings would give others to a shell.
_PLAIN_HOST = re.compile(r"[\w][\w.@:%+-]*|\[[0-9A-Fa-f]*:[0-9A-Fa-f:.%\w]*\]")

AnswerState = Literal["answered", "late", "lost", "busy", "failed", "no GPU"]


@dataclass(frozen=True)
class HostJob:
    """What each host runs. `program`: the command that is pyxfer there."""

    program: tuple[str, ...] = ("pyxfer",)
    budget_s: float = 25.0
    labels: Mapping[str, str] = field(default_factory=dict)
    devices: str | None = None

    @property
    def limit_s(self) -> float:
        """A host that has not answered after this time has hung."""
        return self.budget_s + START_S

    def command(self) -> list[str]:
        words = [*self.program, "fleet", "host", f"--budget={self.budget_s:g}s", "--export-json=-"]
        if self.devices is not None:
            words.append(f"--device={self.devices}")
        return words + [f"--label={name}={value}" for name, value in self.labels.items()]

    def limited(self) -> list[str]:
        """The command with a time limit of its own: it ends on the host even if the connection is lost."""
        return ["timeout", f"--kill-after={_KILL_S}", f"{self.limit_s:g}", *self.command()]


@dataclass(frozen=True)
class Answer:
    """What came back from a host: what it wrote, or why there is nothing."""

    host: str
    state: AnswerState
    output: bytes = b""
    reason: str | None = None

    def arrival(self, source: str) -> Arrival:
        """The row of the host. A document counts even if the host hung or was lost after it."""
        if self.output.strip():
            found = arrival_of(self.output, self.host, source)
            if found.report is not None:
                return found
            if self.state == "answered":
                first = self.output.strip()[:_LONGEST_START]
                line = first.decode(errors="replace").splitlines()[0]
                why = f"it wrote what is not JSON, such as {line!r}; start files of its shell must not print anything"
                return found if first.startswith(b"{") else replace(found, reason=why)
        state: HostState = "failed" if self.state == "answered" else self.state
        return Arrival(self.host, state, self.reason or "it wrote nothing", None, source)


class Launcher(Protocol):
    name: str
    hosts: list[str]
    """The hosts that it knows of."""

    @property
    def named(self) -> Collection[str]:
        """The hosts that the user or the scheduler has named. Others have named themselves."""

    @property
    def running(self) -> int:
        """The number of hosts that have begun and not answered."""

    def start(self, hosts: Sequence[str]) -> None:
        """Begin with these hosts. It may be called again when all of them have answered."""

    def poll(self, seconds: float) -> list[Answer]:
        """Wait up to `seconds` for answers. Every host answers once."""

    def stop(self) -> None:
        """End what still runs. Nothing can be started after it."""


def check_hosts(hosts: Sequence[str], *, plain: bool) -> list[str]:
    """The hosts without duplicates. `plain`: refuse names that would mean something else to ssh, srun or a shell."""
    found = list(dict.fromkeys(host.strip() for host in hosts if host.strip()))
    for host in found:
        if plain and not _PLAIN_HOST.fullmatch(host):
            raise UsageError(
                f"{host!r:.80} is not the name of a host: it begins with a dash or has special characters."
            )
    if not found:
        raise UsageError("No host is named: give --hosts or --hosts-file.")
    if len(found) > _MAX_HOSTS:
        raise UsageError(f"{len(found)} hosts are too many: give at most {_MAX_HOSTS}.")
    return found


@dataclass
class _Child:
    host: str
    process: subprocess.Popen[bytes]
    late_at: float
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)

    def streams(self) -> list[tuple[IO[bytes], bytearray]]:
        pairs = ((self.process.stdout, self.output), (self.process.stderr, self.errors))
        return [(stream, kept) for stream, kept in pairs if stream is not None and not stream.closed]


Explain = Callable[[int, str], tuple[AnswerState, str] | None]


@dataclass
class Processes:
    """A launcher that runs one process on this machine for each host, `at_once` of them at a time.

    `_explain` gives the state for an exit code and what the process wrote on stderr, if it knows a special one.
    `_end_s`: how long jobs take to end after the end of their stdin, if that ends them.
    """

    name: str
    hosts: list[str]
    _command_of: Callable[[str], list[str]]
    _limit_s: float
    _at_once: int
    _explain: Explain
    _end_s: float = 0.0

    def __post_init__(self) -> None:
        self.named = frozenset(self.hosts)
        most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._at_once = min(self._at_once, max(1, (most_files - _OWN_FILES) // 2))
        # All jobs have the same, without data. It ends when this process ends, however that happens.
        self._stdin, self._stdin_end = os.pipe()
        self._waiting: deque[str] = deque()
        self._children: list[_Child] = []
        self._ending: list[tuple[float, subprocess.Popen[bytes]]] = []
        self._selector = selectors.DefaultSelector()

    @property
    def running(self) -> int:
        return len(self._children)

    def start(self, hosts: Sequence[str]) -> None:
        self._waiting.extend(hosts)

    def poll(self, seconds: float) -> list[Answer]:
        answers = self._begin()
        self._read(seconds)
        self._kill_stubborn()
        for child in list(self._children):
            if (answer := self._answer(child)) is not None:
                self._children.remove(child)
                answers.append(answer)
        return answers

    def stop(self) -> None:
        self._waiting.clear()
        os.close(self._stdin_end)
        os.close(self._stdin)
        _wait([child.process for child in self._children], self._end_s)
        for child in self._children:
            self._end(child)
        self._children.clear()
        _wait([process for _, process in self._ending], GRACE_S)
        self._kill_stubborn(now=True)

    def _begin(self) -> list[Answer]:
        failed = []
        while self._waiting and len(self._children) < self._at_once:
            host = self._waiting.popleft()
            try:
                process = subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
                    self._command_of(host),
                    stdin=self._stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                failed.append(Answer(host, "failed", reason=f"{self.name} did not start: {error.strerror}"))
                continue
            child = _Child(host, process, time.monotonic() + self._limit_s)
            for stream, kept in child.streams():
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, selectors.EVENT_READ, kept)
            self._children.append(child)
        return failed

    def _read(self, seconds: float) -> None:
        if not self._selector.get_map():
            time.sleep(seconds if self._children else 0)
            return
        for key, _ in self._selector.select(seconds):
            self._take(key.fileobj, key.data)  # type: ignore[arg-type]

    def _take(self, stream: IO[bytes], kept: bytearray) -> bool:
        try:
            data = os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._forget(stream)
            return False
        kept += data
        return True

    def _forget(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(stream)
        stream.close()

    def _answer(self, child: _Child) -> Answer | None:
        code = child.process.poll()
        if len(child.output) > MAX_HOST_BYTES:
            self._end(child)
            return Answer(child.host, "failed", reason=f"it wrote more than {MAX_HOST_BYTES >> 20} MiB")
        del child.errors[:-MAX_ERROR_BYTES]
        if code is not None:
            self._drain(child)
            return self._ended(child, code)
        if time.monotonic() > child.late_at:
            self._end(child)
            return Answer(child.host, "late", bytes(child.output), f"no answer within {self._limit_s:g} s")
        return None

    def _drain(self, child: _Child) -> None:
        """Take what is left, but do not wait for other processes that still have the pipe."""
        for stream, kept in child.streams():
            while len(kept) <= MAX_HOST_BYTES and self._take(stream, kept):
                pass
            if not stream.closed:
                self._forget(stream)

    def _ended(self, child: _Child, code: int) -> Answer:
        output, errors = bytes(child.output), child.errors.decode(errors="replace").strip()
        if output.strip():
            return Answer(child.host, "answered", output)
        last = errors.splitlines()[-1] if errors else "it wrote nothing"
        known = self._explain(code, errors)
        usual: dict[int, tuple[AnswerState, str]] = {
            _NOT_FOUND: ("failed", f"the command was not found there: install pyxfer, or give --pyxfer ({last})"),
            _NO_GPU: ("no GPU", last),
            _KILLED: ("failed", "the job was killed (SIGKILL; possibly out of memory)"),
        }
        state, reason = known or usual.get(code, ("failed", f"exit code {code}: {last}"))
        return Answer(child.host, state, reason=reason)

    def _end(self, child: _Child) -> None:
        """Ask it to end: srun then ends the job on the host, which it could not do if it were killed."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.process.pid, signal.SIGTERM)
        self._drain(child)
        self._ending.append((time.monotonic() + GRACE_S, child.process))

    def _kill_stubborn(self, *, now: bool = False) -> None:
        left = []
        for kill_at, process in self._ending:
            if process.poll() is not None:
                continue
            if now or time.monotonic() > kill_at:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            else:
                left.append((kill_at, process))
        self._ending = left


def _wait(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    until = time.monotonic() + seconds
    while any(process.poll() is None for process in processes) and time.monotonic() < until:
        time.sleep(0.02)


# --- ssh --------------------------------------------------------------------------------------------------------------


def ssh_launcher(job: HostJob, hosts: Sequence[str], at_once: int) -> Processes:
    _check_installed("ssh")
    remote = shlex.join(["sh", "-c", _UNTIL_STDIN_ENDS, "pyxfer", *job.limited()])

    def command_of(host: str) -> list[str]:
        alive = ["ServerAliveInterval=5", "ServerAliveCountMax=3"]
        options = ["BatchMode=yes", f"ConnectTimeout={_CONNECT_S}", *alive, "LogLevel=INFO"]
        return ["ssh", "-T", "-x", *(word for option in options for word in ("-o", option)), "--", host, remote]

    found = check_hosts(hosts, plain=True)
    return Processes("ssh", found, command_of, job.limit_s, at_once, _explain_ssh, _KILL_S + GRACE_S)


# sshd ends no job when the connection ends, but its stdin ends then. `timeout` leads a process group, which is ended as
# a whole: `timeout` alone ends if the signal comes just when it has started the job.
_UNTIL_STDIN_ENDS = (
    'exec 3<&0; "$@" </dev/null 3<&- & job=$!; (cat <&3; kill $job) >/dev/null 2>&1 & watch=$!; exec 3<&-; '
    "wait $job; code=$?; kill -s KILL -- -$job $watch 2>/dev/null; exit $code"
)


def _explain_ssh(code: int, errors: str) -> tuple[AnswerState, str] | None:
    if code != _SSH_FAILED:
        return None
    # It says why it cannot connect, and nothing if a signal has ended what it has started. It may warn of a new host.
    said = [line for line in errors.splitlines() if not line.startswith("Warning: ")]
    return ("lost", said[-1]) if said else ("failed", "the job and its session were killed")


def _check_installed(program: str) -> None:
    if shutil.which(program) is None:
        raise UsageError(f"There is no {program} on the PATH of this machine: install it, or start where it is.")


# --- job steps, inside a Slurm allocation -----------------------------------------------------------------------------


def srun_launcher(job: HostJob, hosts: Sequence[str], at_once: int) -> Processes:
    """A launcher for these hosts, or all of the allocation.

    The steps do not overlap others, so a host on which another step runs is busy.
    """
    if SLURM_JOB not in os.environ:
        raise UsageError("--via srun needs an allocation of Slurm: use salloc or sbatch first.")
    _check_installed("srun")
    found = check_hosts(hosts or _allocated(), plain=True)

    def command_of(host: str) -> list[str]:
        options = ["--nodes=1", "--ntasks=1", "--input=none", "--kill-on-bad-exit=0", f"--immediate={_IMMEDIATE_S}"]
        return ["srun", *options, f"--nodelist={host}", "--", *job.limited()]

    return Processes("srun", found, command_of, job.limit_s, at_once, _explain_srun)


def _allocated() -> list[str]:
    try:
        listed = subprocess.run(  # noqa: S603 - a list of arguments, and no shell
            ["scontrol", "show", "hostnames", os.environ.get(_NODES, "")],  # noqa: S607 - wherever Slurm is
            capture_output=True,
            text=True,
            timeout=_SCONTROL_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"scontrol did not list the hosts of the allocation ({error}): give --hosts.") from error
    return listed.stdout.split()


def _explain_srun(_: int, errors: str) -> tuple[AnswerState, str] | None:
    last = errors.splitlines()[-1] if errors else ""
    text = errors.lower()
    if any(words in text for words in _BUSY):
        return "busy", last
    return ("lost", last) if any(words in text for words in _LOST) else None
