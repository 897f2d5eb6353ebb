"""Host jobs as tasks of a running Ray cluster, through a process of its own (`ray_tasks`)."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import queue
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import IO, Any

from pyxfer._document.fleets import MAX_HOST_BYTES
from pyxfer._fleet.launch import GRACE_S, MAX_ERROR_BYTES, Answer, HostJob
from pyxfer._python import BOOT, python_command
from pyxfer.errors import INSTALL, UsageError
from pyxfer.native import HOST

JOIN_S = 60.0
"""To join a cluster. Ray itself would try for longer."""
QUEUE_S = 20.0
"""For the GPUs of a host to be free, and for a worker process to start, unless the caller waits for longer."""
_PYXFER = "from pyxfer.__main__ import main; main()"
_LOG_PREFIX = re.compile(r"^\[[^]]*\] (\([^)]*\) )?(\S+:\d+: +)?")
_LONGEST_REASON = 160


def ray_launcher(job: HostJob, hosts: Sequence[str], queue_s: float = QUEUE_S) -> RayLauncher:
    """A launcher for these hosts, or all nodes with GPUs. `queue_s`: how long a host's GPUs may be taken."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError(f"Ray is not installed: {INSTALL['ray']}, in the version of the cluster.")
    launcher = RayLauncher(job, hosts, queue_s)
    launcher.join()
    return launcher


class RayLauncher:
    """Talks to the process that has joined the cluster. When it ends, the hosts without an answer are lost."""

    name = "ray"

    def __init__(self, job: HostJob, hosts: Sequence[str], queue_s: float = QUEUE_S) -> None:
        self._limit_s = 2 * QUEUE_S + queue_s + job.limit_s
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self.named = frozenset(hosts)
        self.hosts = list(hosts)
        self._waiting: set[str] = set()
        self._begun: set[str] = set()
        self._over_at = 0.0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        self._process = subprocess.Popen(  # noqa: S603 - this Python, and code of our own
            python_command("from pyxfer._fleet.ray_tasks import main; main()"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            cwd="/",  # Ray adds it to the sys.path of all workers
            # Ray would hide the GPUs from a job that asks for none, and say so.
            env={**os.environ, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
        )
        program = None if job.program == ("pyxfer",) else list(job.program)
        arguments = job.command()[len(job.program) :]
        settings = {"program": program, "arguments": arguments, "limit_s": job.limit_s, "queue_s": queue_s}
        self._write({**settings, "boot": BOOT + _PYXFER, "most_bytes": MAX_HOST_BYTES, "cpu_too": job.devices == HOST})
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def join(self) -> None:
        try:
            line = self._lines.get(timeout=JOIN_S)
        except queue.Empty:
            line = {"failure": f"no answer within {JOIN_S:g} s{self._last_words()}"}
        except BaseException:
            self.stop()
            raise
        found = line.get("hosts")
        if not found:
            ended = "none of its nodes has a GPU" if "hosts" in line else f"the process ended{self._last_words()}"
            why = line.get("failure", ended)
            self.stop()
            raise UsageError(f"Ray gives no hosts ({why}): run this on a node of the cluster, or set RAY_ADDRESS.")
        self.hosts = self.hosts or found

    @property
    def running(self) -> int:
        return len(self._begun & self._waiting)

    def start(self, hosts: Sequence[str]) -> None:
        self._waiting, self._begun = set(hosts), set()
        self._over_at = time.monotonic() + self._limit_s
        self._write(list(hosts))

    def poll(self, seconds: float) -> list[Answer]:
        answers = []
        with contextlib.suppress(queue.Empty):
            answers.append(self._lines.get(timeout=seconds))
            while True:
                answers.append(self._lines.get_nowait())
        found = [answer for line in answers if (answer := self._taken(line)) is not None]
        if time.monotonic() > self._over_at:
            found += self._rest("late", "Ray did not answer in time")
        elif any("ended" in line for line in answers):
            found += self._rest("lost", f"the Ray cluster went away{self._last_words()}")
        return found

    def _taken(self, line: dict[str, Any]) -> Answer | None:
        if "begun" in line:
            self._begun.add(line["begun"])
        if line.get("host") not in self._waiting:
            return None
        self._waiting.discard(line["host"])
        return Answer(line["host"], line["state"], base64.b64decode(line["output"]), line["reason"])

    def _rest(self, state: Any, reason: str) -> list[Answer]:
        rest, self._waiting = sorted(self._waiting), set()
        return [Answer(host, state, reason=reason) for host in rest]

    def stop(self) -> None:
        """Leave the cluster. Ray ends the tasks of a process that has left."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._process.terminate()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(GRACE_S)
        self._errors.close()

    def _last_words(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        said = os.pread(self._errors.fileno(), MAX_ERROR_BYTES, max(0, size - MAX_ERROR_BYTES))
        lines = said.decode(errors="replace").strip().splitlines()
        return f": {_LOG_PREFIX.sub('', lines[-1])[:_LONGEST_REASON]}" if lines else ""

    def _write(self, value: object) -> None:
        with contextlib.suppress(OSError):  # if it has ended, `_read` notices
            if self._process.stdin is not None:
                self._process.stdin.write(json.dumps(value).encode() + b"\n")
                self._process.stdin.flush()

    def _read(self, stream: IO[bytes] | None) -> None:
        if stream is not None:
            with stream:
                for line in stream:
                    self._lines.put(json.loads(line))
        self._lines.put({"ended": True})
