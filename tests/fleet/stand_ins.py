"""Executables in place of ssh, srun, scontrol and pyxfer. Their hosts are simulated on this machine."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BEGIN = f"#!{sys.executable}\nimport json, os, sys\n"
_LOG = 'open(os.environ["STAND_IN_LOG"], "a").write(json.dumps(sys.argv) + "\\n")\n'
# A host runs its own script, or else what it is told to, in its own environment.
_HOST = """
wanted = json.loads(os.environ["STAND_IN_HOSTS"])[host]
os.environ.update(wanted.get("env", {}))
if "script" in wanted:
    words = ["sh", "-c", wanted["script"]]
os.execvp(words[0], words)
"""
_SSH = f'{_BEGIN}{_LOG}place = sys.argv.index("--")\nhost = sys.argv[place + 1]\n'
_SSH += f'words = ["sh", "-c", " ".join(sys.argv[place + 2 :])]\n{_HOST}'
_SRUN = f'{_BEGIN}{_LOG}place = sys.argv.index("--")\nwords = sys.argv[place + 1 :]\n'
_SRUN += f'host = next(word.partition("=")[2] for word in sys.argv if word.startswith("--nodelist="))\n{_HOST}'
_SCONTROL = f'{_BEGIN}assert sys.argv[1:3] == ["show", "hostnames"]\nprint("\\n".join(sys.argv[3].split(",")))\n'
_PYXFER = f'#!/bin/sh\nexec {sys.executable} -m pyxfer "$@"\n'


@dataclass(frozen=True)
class StandIns:
    """The folder of the executables, and what they were called with."""

    folder: Path
    log: Path
    environment: dict[str, str]

    def calls(self) -> list[list[str]]:
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]


def make_stand_ins(folder: Path, hosts: dict[str, dict[str, Any]]) -> StandIns:
    """`hosts`: the environment of each (`env`), or what it does instead of what it is told to (`script`)."""
    folder.mkdir(exist_ok=True)
    for name, text in (("ssh", _SSH), ("srun", _SRUN), ("scontrol", _SCONTROL), ("pyxfer", _PYXFER)):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    log = folder / "calls"
    environment = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "STAND_IN_LOG": str(log),
        "STAND_IN_HOSTS": json.dumps(hosts),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "CUDA_VISIBLE_DEVICES": "",
    }
    return StandIns(folder, log, environment)


def link_of(gbps: float, count: int = 1) -> dict[str, str]:
    """The environment of a simulated host whose links have this rate."""
    return {"PYXFER_HOSTRT": f"devices={count};link={gbps}e9:1e-6:{gbps}e9:1e-6"}
