"""Kubernetes manifests and a Slurm script that run the host job and deliver its documents.

Values reach scripts as arguments, environment variables or quoted words, and YAML as double-quoted scalars.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Literal, get_args

from pyxfer._fleet.launch import START_S, HostJob
from pyxfer.errors import UsageError

Kind = Literal["job", "daemonset", "slurm-prolog"]
KINDS: tuple[Kind, ...] = get_args(Kind)
IMAGE = "python:3.12-slim"

_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MOUNT = "/fleet"
# The log of a pod of the Job is its document and nothing else. The pod succeeds whatever the job says: a pod that fails
# would end the pods of the other hosts.
_INSTALL = 'python -m pip install --target /tmp/pyxfer "$0" >/dev/termination-log 2>&1; export PYTHONPATH=/tmp/pyxfer; '
_ONCE = '"$@" 2>/dev/termination-log || true'
_REPEATED = (
    "trap 'exit 0' TERM; while true; do "
    'test -n "$(nvidia-smi --query-compute-apps=pid --format=csv,noheader)" || "$@" || true; '
    'sleep "$PAUSE_S" & wait $!; done'
)


@dataclass(frozen=True)
class Deployment:
    """What a manifest says. Without an `image` a plain Python installs `requirement` with pip."""

    job: HostJob
    requirement: str
    name: str = "pyxfer-fleet"
    image: str | None = None
    hosts: int = 1
    gpus: int = 8
    claim: str | None = None
    folder: str = "/var/lib/pyxfer"
    every_s: float = 24 * 3600.0

    def __post_init__(self) -> None:
        for option, text in (("--name", self.name), ("--claim", self.claim)):
            if text is not None and not _DNS_NAME.fullmatch(text):
                raise UsageError(
                    f"{option} {text!r:.80} is not valid in Kubernetes: give lower-case letters, digits and dashes."
                )
        if self.image is not None and not re.fullmatch(r"[\w][\w./:@+-]*", self.image, re.ASCII):
            raise UsageError(f"--image {self.image!r:.80} is not the name of an image: give one without spaces.")
        if not self.folder.startswith("/") or not self.folder.isprintable():
            raise UsageError(f"--folder {self.folder!r:.80} is not an absolute path in printable characters: give one.")


def manifest(kind: Kind, deployment: Deployment) -> str:
    return {"job": _job, "daemonset": _daemon_set, "slurm-prolog": _prolog}[kind](deployment)


def _quoted(value: str) -> str:
    """A double-quoted scalar of YAML, which takes every string as JSON writes it in ASCII."""
    return json.dumps(value)


def _container(deployment: Deployment, script: str, target: str) -> str:
    install = _INSTALL if deployment.image is None else ""
    words = ["sh", "-c", f"set -e; {install}{script}", deployment.requirement, *deployment.job.command(None)]
    # Kubernetes replaces $(NAME) by a variable, here in the name and the target alone.
    command = [*(word.replace("$(", "$$(") for word in words), "--name=$(NODE_NAME)", f"--export-json={target}"]
    return f"""\
        - name: host
          image: {_quoted(deployment.image or IMAGE)}
          command: [{", ".join(map(_quoted, command))}]
          env:
            - name: NODE_NAME
              valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}
            - {{name: NVIDIA_DRIVER_CAPABILITIES, value: "compute,utility"}}
"""


def _volume(deployment: Deployment) -> str:
    source = f"hostPath: {{path: {_quoted(deployment.folder)}, type: DirectoryOrCreate}}"
    if deployment.claim is not None:
        source = f"persistentVolumeClaim: {{claimName: {_quoted(deployment.claim)}}}"
    return f"""\
          volumeMounts:
            - {{name: fleet, mountPath: {_MOUNT}}}
      volumes:
        - name: fleet
          {source}
"""


_JOB = """\
# One pod on each host ({hosts} in all), which holds the GPUs of its host while it measures.
{fetch}
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completionMode: Indexed
  completions: {hosts}
  parallelism: {hosts}
  backoffLimit: 0
  activeDeadlineSeconds: 1800
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      restartPolicy: Never
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector: {{matchLabels: {{app: {name}}}}}
      containers:
{container}\
          resources:
            limits: {{nvidia.com/gpu: {gpus}}}
"""
_FETCH = """\
# The log of a pod is its document:
#   mkdir hosts
#   for pod in $(kubectl get pods -l job-name={name} -o name); do kubectl logs "$pod" > "hosts/${{pod#pod/}}.json"; done
#   pyxfer fleet judge hosts"""
_FETCH_CLAIM = "# The documents are in the claim, for pyxfer fleet judge FOLDER."


def _job(deployment: Deployment) -> str:
    to_claim = deployment.claim is not None
    text = _JOB.format(
        fetch=_FETCH_CLAIM if to_claim else _FETCH.format(name=deployment.name),
        name=_quoted(deployment.name),
        hosts=deployment.hosts,
        gpus=deployment.gpus,
        container=_container(deployment, _ONCE, f"{_MOUNT}/$(NODE_NAME).json" if to_claim else "-"),
    )
    return text + (_volume(deployment) if to_claim else "")


_DAEMON_SET = """\
# On every host with the label nvidia.com/gpu.present (of the GPU operator), again and again while no process uses a
# GPU. It asks for no GPU, so that it takes none from others. Documents are files NODE.json, for pyxfer fleet judge.
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {name}
spec:
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      nodeSelector: {{nvidia.com/gpu.present: "true"}}
      tolerations:
        - {{key: nvidia.com/gpu, operator: Exists}}
      containers:
{container}\
            - {{name: NVIDIA_VISIBLE_DEVICES, value: "all"}}
            - {{name: PAUSE_S, value: "{pause}"}}
"""


def _daemon_set(deployment: Deployment) -> str:
    text = _DAEMON_SET.format(
        name=_quoted(deployment.name),
        container=_container(deployment, _REPEATED, f"{_MOUNT}/$(NODE_NAME).json"),
        pause=round(deployment.every_s),
    )
    return text + _volume(deployment)


# Slurm ends a HealthCheckProgram after 60 seconds.
_SLURM_S = 60
_KILL_S = 5
_PROLOG = """\
#!/bin/bash
# Slurm's Prolog, Epilog or HealthCheckProgram: measures this host and leaves its document in a folder that all hosts
# share, for pyxfer fleet judge FOLDER. It measures at most once in {minutes} minutes, and never drains a host.
folder={folder}
host=${{SLURMD_NODENAME:-$(hostname -s)}}
file=$folder/$host.json
if [ -n "$(find "$file" -mmin -{minutes} 2>/dev/null)" ]; then exit 0; fi
said=$(timeout --kill-after={kill} {limit} {command} --name "$host" --export-json "$file" 2>&1 >/dev/null)
code=$?
if [ "$code" -ne 0 ]; then logger -t pyxfer -- "pyxfer fleet host ended with $code: ${{said:0:500}}" 2>/dev/null; fi
exit 0
"""


def _prolog(deployment: Deployment) -> str:
    longest = _SLURM_S - _KILL_S - START_S
    if deployment.job.budget_s > longest:
        raise UsageError(
            f"--budget {deployment.job.budget_s:g}s is too long for --kind slurm-prolog: give at most {longest:g} s, "
            f"because Slurm ends the script after {_SLURM_S} s."
        )
    return _PROLOG.format(
        folder=shlex.quote(deployment.folder),
        minutes=max(1, round(deployment.every_s / 60)),
        limit=round(deployment.job.limit_s),
        kill=_KILL_S,
        command=shlex.join(deployment.job.command(None)),
    )
