"""`pyxfer compare` and `pyxfer baseline` with links: pages, exports, options and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import junitparser
import pytest
from baseline.link_processes import make_process, make_processes, shared_uplink
from command_line import pyxfer
from in_process import Command
from links.conftest import Host, Measure, measure, share_uplinks

from pyxfer._baseline import measure as measuring
from pyxfer._baseline.check import make_baseline
from pyxfer._baseline.measure import Request, request_again
from pyxfer._baseline.store import open_store
from pyxfer.native._host import testing

__all__ = ["measure"]
MADE_AT = "2025-11-21T09:00:00+00:00"
SLOW = 0.25  # GB/s: a copy lasts a millisecond
ONE = ("--group", "local", "--size", "64KiB", "--budget", "0.3s", "--device", "host")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Two baselines of links, the second with a shared uplink."""
    paths = {name: str(tmp_path / f"{name}.json") for name in ("fast", "slow")}
    groups = ("host", "together", "pairs", "local", "latency")
    make_baseline("links", {}, make_processes(groups=groups), MADE_AT).save(paths["fast"])
    slow = make_processes(seed=2, rate_of=shared_uplink(0, 1), groups=groups)
    make_baseline("links", {}, slow, MADE_AT).save(paths["slow"])
    return paths


def test_the_page_has_the_slow_cells_and_their_cause(command: Command, files: dict[str, str]) -> None:
    ended = command("compare", files["fast"], files["slow"])
    assert ended.returncode == 0
    assert ended.stdout.startswith("SLOW: 8 of ")
    assert any(
        "links.together.h2d.ce:host-gpu0+gpu1:128MiB" in line and "SLOW" in line for line in ended.stdout.splitlines()
    )
    assert "share an uplink" in ended.stdout


def test_exports_have_every_cell(command: Command, files: dict[str, str], tmp_path: Path) -> None:
    out = {form: str(tmp_path / f"out.{form}") for form in ("json", "github", "bencher")}
    options = [word for form, path in out.items() for word in (f"--export-{form}", path)]
    assert command("compare", files["fast"], files["slow"], *options).returncode == 0
    rows = {row["text"]: row for row in json.loads(Path(out["json"]).read_text())["cells"]}
    load = "links.latency.idle:host-gpu0:2MiB"
    assert rows[load]["a_s"]["value"] == pytest.approx(1181e-9, rel=0.01)
    github = {row["name"]: row for row in json.loads(Path(out["github"]).read_text())}
    assert github[load]["unit"] == "million loads/s"
    assert github[load]["value"] == pytest.approx(1e3 / 1181, rel=0.01)
    bencher = json.loads(Path(out["bencher"]).read_text())
    assert bencher[load]["latency"]["value"] == pytest.approx(1181, rel=0.01)
    assert bencher["links.pairs.write.ce:gpu0-gpu1:512MiB"]["bandwidth"]["value"] == pytest.approx(396.1e9, rel=0.02)


def test_a_large_comparison_shows_what_is_not_the_same(command: Command, tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.json") for number in (1, 2)]
    make_baseline("links", {}, make_processes(gpus=4), MADE_AT).save(paths[0])
    slow = make_processes(seed=2, gpus=4, rate_of=shared_uplink(0, 1))
    make_baseline("links", {}, slow, MADE_AT).save(paths[1])
    page = command("compare", *paths).stdout
    lines = [line for line in page.splitlines() if line.startswith("links.")]
    assert 0 < len(lines) <= 60
    assert not any("SAME" in line for line in lines)
    assert "Not shown: " in page


def options_of(request: Request) -> dict[str, str]:
    return dict(word.removeprefix("--").split("=", 1) for word in request.words if "=" in word)


def test_a_request_repeats_earlier_links() -> None:
    earlier = make_process(0, 1)
    request = request_again(("GPU-0", "GPU-1"), earlier)
    given = options_of(request)
    assert given["device"] == "GPU-0,GPU-1"
    assert given["group"] == ",".join(earlier.parameters.groups)
    assert (given["seed"], "size" in given) == (str(earlier.parameters.seed), False)
    assert "--require-gpu" in request.words


@pytest.mark.slow
def test_a_check_of_simulated_gpus_finds_a_shared_uplink(
    command: Command, measure: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def in_this_process(request: Request, _: object, ready: measuring.Ready) -> object:
        ready.close()
        given = options_of(request)
        return measure(2, SLOW, group=given["group"], engine=given["engine"], seed=int(given["seed"]))

    monkeypatch.setattr(measuring, "measure_process", in_this_process)
    testing.set_device_count(2)
    store, junit = str(tmp_path / "s.db"), tmp_path / "check.xml"
    asked = ("--group", "host,together", "--engine", "ce", "--processes", "3")
    saved = command("baseline", "save", "--links", *asked, "--store", store)
    assert saved.returncode == 0, saved.stderr
    with open_store(store) as opened:
        (kept,) = opened.baselines()
    assert (kept.name, len(kept.fingerprint.gpus)) == ("links", 2)
    share_uplinks(monkeypatch, Host(link=SLOW, uplinks=[((0, 1), SLOW)]))
    options = ("--tolerance", "25%", "--retries", "2", "--export-junit", str(junit), "--store", store)
    checked = command("baseline", "check", "--links", *options)
    assert checked.returncode == 1, checked.stdout + checked.stderr
    (suite,) = junitparser.JUnitXml.fromfile(str(junit))
    failed = {case.name.rpartition(":")[0] for case in suite if any(each.type == "SLOW" for each in case.result)}
    assert "links.together.h2d.ce:host-gpu0+gpu1" in failed
    assert not any(name.startswith("links.host.h2d") for name in failed)


@pytest.mark.slow
def test_processes_measure_links_of_host_memory(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "s.db"))
    saved = pyxfer("baseline", "save", "--links", *ONE, *store, CUDA_VISIBLE_DEVICES="")
    assert saved.returncode == 0, saved.stderr
    assert "links.local.copy.ce:gpu0-gpu0:64KiB" in saved.stdout
    checked = pyxfer("baseline", "check", "--links", "--device", "host", "--tolerance", "99%", "--retries", "0", *store)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with open_store(store[1]) as opened:
        (points,) = (group.points for group in opened.history("links.local").groups)
    assert len(points) == 5 + 1
