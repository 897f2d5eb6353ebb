"""The known hosts are part of what is installed."""

from __future__ import annotations

from importlib import resources

from doctor.cases import run_of

from pyxfer._doctor.session import references


def test_every_known_host_comes_with_its_run() -> None:
    files = {file.name for file in resources.files("pyxfer").joinpath("references").iterdir()}
    known = references()
    assert known
    assert files == {name for each in known for name in (each.document, each.document.replace(".run.json", ".json"))}
    assert all(run_of(each).measurements for each in known)
