from __future__ import annotations

from pathlib import Path

from command_line import pyxfer
from xfer_samples import session


def test_the_command_shows_a_saved_session(tmp_path: Path) -> None:
    session().save(tmp_path / "main.json")
    result = pyxfer("show", str(tmp_path / "main.json"))
    assert result.returncode == 0, result.stderr
    assert "test_copy  h2d" in result.stdout
    assert pyxfer("show", "--sort", "gbps", str(tmp_path / "main.json")).returncode == 2
