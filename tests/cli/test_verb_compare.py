"""`pyxfer compare` and `pyxfer history`: files and what a store keeps; the same and `pyxfer baseline` of links."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from baseline.link_processes import make_process as make_link_process
from baseline.link_processes import make_processes as make_link_processes
from baseline.link_processes import shared_uplink
from baseline.store.making import run_at
from baseline_samples import Slower, all_slow, as_usual, make_processes, on_host
from command_line import pyxfer as in_a_process
from in_process import Command
from links.conftest import measure

from pyxfer._baseline.check import make_baseline
from pyxfer._baseline.measure import Request, request_again
from pyxfer._baseline.store import open_store
from pyxfer._document.baselines import Baseline
from pyxfer._document.runs import Run

__all__ = ["measure"]
MADE_AT = "2025-11-21T08:30:00+00:00"


def baseline(seed: int, slower: Slower = as_usual) -> Baseline:
    return make_baseline("default", {}, make_processes(3, seed, slower=slower), MADE_AT)


def run(seed: int, slower: Slower = as_usual) -> Run:
    return make_processes(1, seed, slower=slower)[0]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Two baselines and two runs, the second of each a tenth slower, and one of host memory."""
    paths = {name: str(tmp_path / f"{name}.json") for name in ("fast", "slow", "run", "slow_run", "host")}
    baseline(1).save(paths["fast"])
    baseline(2, all_slow(1.1)).save(paths["slow"])
    run(3).save(paths["run"])
    run(4, all_slow(1.1)).save(paths["slow_run"])
    on_host(run(5)).save(paths["host"])
    return paths


@pytest.fixture
def store(tmp_path: Path) -> tuple[str, str, str]:
    """A store with a baseline and a slower run, and the ids of both."""
    path = str(tmp_path / "store.db")
    with open_store(path) as opened:
        return path, opened.add_baseline(baseline(1)), opened.add_run(run(4, all_slow(1.1)))


def test_a_comparison_exits_with_0(files: dict[str, str]) -> None:
    result = in_a_process("compare", files["fast"], files["slow"])
    assert result.returncode == 0
    assert result.stdout.startswith("SLOW: 12 of 12 cells of slow.json are slower than fast.json")


@pytest.mark.parametrize(("share", "code"), [("5%", 1), ("20%", 0)])
def test_fail_on_exits_with_1_if_a_cell_is_certainly_slower(
    command: Command, share: str, code: int, files: dict[str, str]
) -> None:
    result = command("compare", files["fast"], files["slow"], "--fail-on", f"slower:{share}")
    assert result.returncode == code
    assert ("certainly slower by more than 5%: 12" in result.stderr) == bool(code)


def test_two_runs_have_an_assumed_spread_and_never_fail(command: Command, files: dict[str, str]) -> None:
    result = command("compare", files["run"], files["slow_run"], "--export-json", "-")
    assert "one-process" in {remark["code"] for remark in json.loads(result.stdout)["remarks"]}
    assert command("compare", files["run"], files["slow_run"], "--fail-on", "slower:5%").returncode == 0


def test_stored_runs_are_named_by_id_or_name(command: Command, store: tuple[str, str, str]) -> None:
    path, baseline_id, run_id = store
    for first in (baseline_id, "baseline:default"):
        result = command("compare", first, run_id, "--store", path)
        assert result.returncode == 0, result.stderr
        assert f"of {run_id} are slower than baseline 'default'" in result.stdout


@pytest.mark.parametrize(
    ("b", "words"),
    [
        ("host", "was measured in host memory, without a GPU"),
        ("nowhere.json", "nowhere.json"),
        ("r-0123456789ab", "has no run"),
        ("baseline:winter", "has no baseline 'winter'"),
    ],
)
def test_incomparable_inputs_are_refused(
    command: Command, b: str, words: str, files: dict[str, str], store: tuple[str, str, str]
) -> None:
    result = command("compare", files["fast"], files.get(b, b), "--store", store[0])
    assert result.returncode in (2, 4)
    assert words in result.stderr
    assert (result.stdout, "Traceback" in result.stderr) == ("", False)


@pytest.fixture
def two_hosts(tmp_path: Path) -> str:
    """Two hosts, one of which was slow on its last day."""
    path = str(tmp_path / "store.db")
    with open_store(path) as opened:
        for day in (1, 2, 3, 4):
            opened.add_run(run_at(day, host="node-7", slower=1.12 if day == 4 else 1.0))
            opened.add_run(run_at(day, host="node\n8"))
    return path


def test_many_hosts_have_one_line_each(command: Command, two_hosts: str) -> None:
    with open_store(two_hosts) as opened:
        for number in range(6):
            opened.add_run(run_at(1, host=f"other-{number}"))
    lines = command("history", "--store", two_hosts).stdout.splitlines()
    assert lines[0].startswith("Newest of 8 histories of h2d:pinned:16MiB")
    assert lines[3].split()[:1] == ["node-7"]
    assert "-10.7 %" in lines[3]
    assert len(lines) == 11


def test_as_json_it_has_every_point(command: Command, two_hosts: str) -> None:
    found = json.loads(command("history", "--store", two_hosts, "--export-json", "-").stdout)
    assert [(group["host"], len(group["points"])) for group in found["groups"]] == [("node\n8", 4), ("node-7", 4)]
    assert found["schema_version"] == 1


def test_as_csv_a_host_is_not_a_formula(command: Command, tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    with open_store(path) as opened:
        run_id = opened.add_run(run_at(host="=1+1"))
    header, row = command("history", "--store", path, "--export-csv", "-").stdout.splitlines()
    assert header.split(",")[:6] == ["host", "runtime", "device", "gpu", "cell", "worker"]
    assert row.startswith("'=1+1,cuda,NVIDIA H200,GPU-6a1f2c3d")
    assert run_id in row


# --- links -----------------------------------------------------------------------------------------------------------


SLOW = 0.25  # GB/s: a copy lasts a millisecond
ONE = ("--group", "local", "--size", "64KiB", "--budget", "0.3s", "--device", "host")


@pytest.fixture
def of_links(tmp_path: Path) -> dict[str, str]:
    """Two baselines of links, the second with a shared uplink."""
    paths = {name: str(tmp_path / f"{name}.json") for name in ("fast", "slow")}
    groups = ("host", "together", "pairs", "local", "latency")
    make_baseline("links", {}, make_link_processes(groups=groups), MADE_AT).save(paths["fast"])
    slow = make_link_processes(seed=2, rate_of=shared_uplink(0, 1), groups=groups)
    make_baseline("links", {}, slow, MADE_AT).save(paths["slow"])
    return paths


def test_the_page_has_the_slow_cells_and_their_cause(command: Command, of_links: dict[str, str]) -> None:
    ended = command("compare", of_links["fast"], of_links["slow"])
    assert ended.returncode == 0
    assert ended.stdout.startswith("SLOW: 8 of ")
    assert any(
        "links.together.h2d.ce:host-gpu0+gpu1:128MiB" in line and "SLOW" in line for line in ended.stdout.splitlines()
    )
    assert "share an uplink" in ended.stdout


def test_exports_have_every_cell(command: Command, of_links: dict[str, str], tmp_path: Path) -> None:
    out = {form: str(tmp_path / f"out.{form}") for form in ("json", "github", "bencher")}
    options = [word for form, path in out.items() for word in (f"--export-{form}", path)]
    assert command("compare", of_links["fast"], of_links["slow"], *options).returncode == 0
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
    make_baseline("links", {}, make_link_processes(gpus=4), MADE_AT).save(paths[0])
    slow = make_link_processes(seed=2, gpus=4, rate_of=shared_uplink(0, 1))
    make_baseline("links", {}, slow, MADE_AT).save(paths[1])
    page = command("compare", *paths).stdout
    lines = [line for line in page.splitlines() if line.startswith("links.")]
    assert 0 < len(lines) <= 60
    assert not any("SAME" in line for line in lines)
    assert "Not shown: " in page


def options_of(request: Request) -> dict[str, str]:
    return dict(word.removeprefix("--").split("=", 1) for word in request.words if "=" in word)


def test_a_request_repeats_earlier_links() -> None:
    earlier = make_link_process(0, 1)
    request = request_again(("GPU-0", "GPU-1"), earlier)
    given = options_of(request)
    assert given["device"] == "GPU-0,GPU-1"
    assert given["group"] == ",".join(earlier.parameters.groups)
    assert "size" not in given
    assert "--require-gpu" in request.words


@pytest.mark.slow
def test_processes_measure_links_of_host_memory(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "s.db"))
    saved = in_a_process("baseline", "save", "--links", *ONE, *store, CUDA_VISIBLE_DEVICES="")
    assert saved.returncode == 0, saved.stderr
    assert "links.local.copy.ce:gpu0-gpu0:64KiB" in saved.stdout
    checked = in_a_process(
        "baseline", "check", "--links", "--device", "host", "--tolerance", "99%", "--retries", "0", *store
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with open_store(store[1]) as opened:
        (points,) = (group.points for group in opened.history("links.local").groups)
    assert len(points) == 5 + 1
