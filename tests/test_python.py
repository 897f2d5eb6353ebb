"""The other Pythons that pyxfer starts run no module of the current directory."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fleet_samples import make_host

ROOT = Path(__file__).resolve().parent.parent
PLANTED = (sys.stdlib_module_names - set(sys.builtin_module_names)) | {"ray", "numpy", "msgspec", "rich", "typer"}
PROCESSES = {
    "fleet judge": """
from pyxfer._fleet import collect
collect._MANY = 1
(row,) = collect.read_reports(sys.argv[1:])
assert row.state == "measured"
""",
    "job of a Ray worker": """
from pyxfer._fleet import ray, ray_tasks
_, found = ray_tasks.host_job(None, ray.BOOT + ray._PYXFER, ["--version"], 60, 1 << 20)
assert found[1].startswith(b"pyxfer"), found
""",
    "join of a Ray cluster": """
from pyxfer._fleet import launch, ray
try:
    ray.ray_launcher(launch.HostJob(), [])
except ValueError as error:
    assert "Invalid address format: nowhere" in str(error), error
""",
    "process of a baseline": """
from pyxfer._baseline.measure import Ready
ready = Ready()
ready.begin(["--version"])
assert ready.process.wait() == 0
""",
    "charts within a memory limit": """
import resource
from pyxfer._report import webpage
resource.setrlimit(resource.RLIMIT_AS, (1 << 50, resource.RLIM_INFINITY))
assert webpage._draw([]) == []
""",
}


@pytest.mark.parametrize("name", PROCESSES)
def test_no_module_of_the_current_directory_is_run(name: str, tmp_path: Path) -> None:
    library = {"join of a Ray cluster": "ray", "charts within a memory limit": "vl_convert"}.get(name, "msgspec")
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    here, run = tmp_path / "here", tmp_path / "run"
    here.mkdir()
    for module in PLANTED:
        (here / f"{module}.py").write_text(f"open({str(run)!r}, 'a').write({module!r} + ' ')\n")
    make_host("n1").save(tmp_path / "n1.json")
    script = tmp_path / "script.py"  # as the installed command, it does not look into the current directory
    script.write_text(f"import sys\nsys.path[0:1] = []\n{PROCESSES[name]}\n")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RAY_ADDRESS": "nowhere"}
    command = [sys.executable, str(script), str(tmp_path / "n1.json")]
    ended = subprocess.run(command, cwd=here, env=variables, capture_output=True, text=True, check=False)
    assert not run.exists(), run.read_text()
    assert ended.returncode == 0, ended.stderr


def test_one_helper_starts_every_other_python() -> None:
    users = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "pyxfer").rglob("*.py")
        if "sys.executable" in (text := path.read_text(encoding="utf-8")) or "multiprocessing.get_context" in text
    }
    # A watched script has the sys.path of its own; a worker of Ray has not to have pyxfer.
    assert users == {
        "pyxfer/_python.py",
        "pyxfer/_cli/watch.py",
        "pyxfer/_fleet/ray_tasks.py",
        "pyxfer/_upload/uploader.py",
    }
