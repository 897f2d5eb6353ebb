"""The process that joins a Ray cluster and runs the host job on its nodes.

It is a process of its own, because Ray ends the process that has joined when the cluster goes away. It says on stdout,
one JSON object a line, which hosts there are, which have begun, and what they answer. Each line on stdin names the
hosts to measure; at its end the process ends.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_HOST_LABEL = "pyxfer/host"
_TURN_S = 0.2


def host_job(
    program: list[str] | None, boot: str, arguments: list[str], limit_s: float, most_bytes: int
) -> Iterator[Any]:
    """Run in a worker: say that it has begun, then what the job wrote. It is sent as a whole, so it imports here.

    Without a `program` the worker's own Python runs `boot`, with the modules of the worker.
    """
    import signal
    import subprocess
    import sys
    import tempfile
    import time

    yield None
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        safe_path = ["-P"] if sys.version_info >= (3, 11) else []
        command = [*(program or [sys.executable, *safe_path, "-c", boot, "\n".join(sys.path)]), *arguments]
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)  # noqa: S603
        except OSError as error:
            yield "failed", b"", f"{command[0]} did not start: {error.strerror}"
            return
        late_at, state = time.monotonic() + limit_s, "answered"
        while process.poll() is None and state == "answered":
            if time.monotonic() > late_at:
                state = "late"
            elif output.seek(0, 2) + errors.seek(0, 2) > most_bytes:
                state = "failed"
            else:
                time.sleep(0.05)
        if state != "answered":
            process.kill()
        code = process.wait()
        output.seek(0)
        errors.seek(max(0, errors.seek(0, 2) - 4096))
        said = errors.read().decode(errors="replace").strip().splitlines()
        reasons = {
            "late": f"no answer within {limit_s:g} s",
            "failed": f"it wrote more than {most_bytes >> 20} MiB",
            "answered": f"exit code {code}: {said[-1] if said else 'it wrote nothing'}",
        }
        if state == "answered" and code == -signal.SIGKILL:
            reasons[state] = "the job was killed (SIGKILL; possibly out of memory)"
        yield state, b"" if state == "failed" else output.read(most_bytes), reasons[state]


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    # Ray and its raylets write to stdout too.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)

        def tell(**line: Any) -> None:
            lines.write(json.dumps(line) + "\n")
            lines.flush()

        try:
            import ray

            ray.init(address="auto", logging_level=logging.ERROR, log_to_driver=False)
            by_value: Any = ray.cloudpickle.register_pickle_by_value
            by_value(sys.modules[__name__])  # so the workers need not have this module
            nodes = _nodes(ray, cpu_too=settings["cpu_too"])
        except Exception as error:  # noqa: BLE001 - of any kind; the user needs its text
            tell(failure=f"{type(error).__name__}: {error}"[:500])
            return
        tell(hosts=list(nodes))
        for line in sys.stdin:
            _Round(ray, nodes, settings, tell).run(json.loads(line))


def _nodes(ray: Any, *, cpu_too: bool) -> dict[str, dict[str, Any]]:
    """The nodes that are alive and have GPUs, by their host's name; Ray's number is added where two have the same."""
    alive = [node for node in ray.nodes() if node["Alive"] and (cpu_too or node["Resources"].get("GPU"))]
    names = [(node.get("Labels") or {}).get(_HOST_LABEL) or node["NodeManagerHostname"] for node in alive]
    return {
        name if names.count(name) == 1 else f"{name}-{node['NodeID'][:8]}": node
        for name, node in zip(names, alive, strict=True)
    }


@dataclass
class _Round:
    _ray: Any
    _nodes: dict[str, dict[str, Any]]
    _settings: dict[str, Any]
    _tell: Any
    _tasks: dict[Any, str] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)

    def run(self, hosts: list[str]) -> None:
        for host in hosts:
            self._submit(host)
        queue_s = self._settings["queue_s"]
        busy_at = time.monotonic() + queue_s
        over_at = busy_at + self._settings["limit_s"] + queue_s
        while self._tasks:
            ready, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=_TURN_S)
            for task in ready:
                self._take(task)
            now = time.monotonic()
            queued = [task for task, host in self._tasks.items() if host not in self._begun and now > busy_at]
            alive = self._alive() if queued else set()
            for task, host in list(self._tasks.items()):
                if task in queued and host in alive:
                    self._give_up(task, "busy", f"its GPUs were not free within {queue_s:g} s")
                elif task in queued:
                    self._give_up(task, "lost", "the node or the cluster went away")
                elif now > over_at:
                    self._give_up(task, "late", "the task did not end in time")

    def _alive(self) -> set[str]:
        """The hosts that the cluster still has. If it has gone away, Ray ends this process during the call."""
        ids = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        return {host for host, node in self._nodes.items() if node["NodeID"] in ids}

    def _submit(self, host: str) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if host not in self._nodes:
            self._answer(host, "lost", b"", "the cluster has no such node")
            return
        node = self._nodes[host]
        task = self._ray.remote(host_job).options(
            num_cpus=0,
            num_gpus=node["Resources"].get("GPU", 0),
            max_retries=0,
            num_returns="streaming",
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        settings = self._settings
        arguments = [*settings["arguments"], *_labels(node)]
        given = (settings[name] for name in ("program", "boot"))
        generator = task.remote(*given, arguments, settings["limit_s"], settings["most_bytes"])
        self._tasks[generator] = host

    def _take(self, task: Any) -> None:
        host = self._tasks[task]
        try:
            found = self._ray.get(next(task), timeout=self._settings["queue_s"])
        except StopIteration:
            self._give_up(task, "lost", "the task ended without an answer")
        except Exception as error:  # noqa: BLE001 - whatever Ray raises, only this host is lost
            self._give_up(task, "lost", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        else:
            if found is None:
                self._begun.add(host)
                self._tell(begun=host)
            else:
                del self._tasks[task]
                self._answer(host, *found)

    def _give_up(self, task: Any, state: str, reason: str) -> None:
        host = self._tasks.pop(task)
        self._answer(host, state, b"", reason)
        self._ray.cancel(task, force=False)

    def _answer(self, host: str, state: str, output: bytes, reason: str) -> None:
        self._tell(host=host, state=state, output=base64.b64encode(output).decode(), reason=reason[:500])


def _labels(node: dict[str, Any]) -> list[str]:
    """The labels that users gave to the node, as far as they are labels of hosts."""
    from pyxfer._fleet.job import is_label

    given = {name: value for name, value in (node.get("Labels") or {}).items() if not name.startswith("ray.io/")}
    return [f"--label={name}={value}" for name, value in given.items() if is_label(name, value)]
