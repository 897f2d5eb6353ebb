"""`pyxfer links`: its options, its exports, and how it ends."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
import pytest
from command_line import in_terminal, pyxfer
from in_process import Command
from link_samples import make_links

from pyxfer._document.links import Links
from pyxfer._document.runs import Fact, unknown

TWO = "devices=2;link-of=0:1e9:1e-6:1e9:1e-6;link-of=1:1e9:1e-6:1e9:1e-6"
QUICK = ("--size", "64KiB", "--budget", "1s", "--engines", "ce")


def test_links_of_simulated_devices_are_measured_and_exported(tmp_path: Path) -> None:
    files = {form: str(tmp_path / f"links.{form}") for form in ("json", "csv", "md")}
    exports = [word for form, path in files.items() for word in (f"--export-{form}", path)]
    ended = pyxfer("links", "--groups", "pairs", *QUICK, *exports, PYXFER_HOSTRT=TWO, CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("Copies from one GPU to another reach ")
    run = Links.load(files["json"])
    assert {row.group for row in run.traffics} == {"pairs"}
    assert run.parameters.groups == ("pairs",)
    with Path(files["csv"]).open(encoding="utf-8") as file:
        assert {row["group"] for row in csv.DictReader(file)} == {"pairs"}
    assert Path(files["md"]).read_text(encoding="utf-8").startswith("## pyxfer links\n")
    assert pyxfer("show", files["json"]).stdout == ended.stdout


@pytest.mark.slow
def test_a_run_writes_its_report(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    page = tmp_path / "links.html"
    ended = pyxfer(
        "links", "--groups", "pairs", *QUICK, "--report", str(page), PYXFER_HOSTRT=TWO, CUDA_VISIBLE_DEVICES=""
    )
    assert ended.returncode == 0, ended.stderr
    assert 'id="document-1-chart-pairs"' in page.read_text(encoding="utf-8")


def test_a_saved_run_fits_a_terminal(tmp_path: Path) -> None:
    make_links().save(tmp_path / "links.json")
    code, text = in_terminal("show", str(tmp_path / "links.json"), NO_COLOR="1")
    assert code == 0
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--groups", "all"), "'all' is unknown"),
        (("--engines", "tma"), "'tma' is unknown"),
        (("--size", "1MiB,2MiB"), "is not a size"),
        (("--devices", "0,0"), "name each device once"),
        (("--devices", "9"), "is none of the devices"),
        (("--budget", "0s"), "--budget"),
    ],
)
def test_invalid_options_are_refused(command: Command, arguments: tuple[str, ...], words: str) -> None:
    ended = command("links", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr


def test_exit_codes_of_invalid_runs() -> None:
    from pyxfer._cli.failures import end_as

    good = make_links(1, groups=("host",))
    end_as(good)
    row = good.traffics[0]
    flow = msgspec.structs.replace(row.flows[0], verified=Fact(False), rate=unknown("the contents were wrong"))
    wrong = msgspec.structs.replace(row, flows=(flow,))
    for run, code in (
        (msgspec.structs.replace(good, ended="interrupted"), 130),
        (msgspec.structs.replace(good, ended="failed", failure="gone"), 4),
        (msgspec.structs.replace(good, traffics=(wrong, *good.traffics[1:])), 4),
        (msgspec.structs.replace(good, traffics=()), 4),
    ):
        with pytest.raises(SystemExit) as end:
            end_as(run)
        assert end.value.code == code


def test_the_doctor_examines_a_saved_run(command: Command, tmp_path: Path) -> None:
    make_links(groups=("together",)).save(tmp_path / "links.json")
    ended = command("doctor", str(tmp_path / "links.json"))
    assert ended.returncode == 0
    assert "shared uplinks" in ended.stdout


def test_a_saved_run_becomes_metrics_of_each_gpu_and_of_its_links(command: Command, tmp_path: Path) -> None:
    make_links(groups=("together", "pairs", "latency")).save(tmp_path / "links.json")
    ended = command("metrics", str(tmp_path / "links.json"))
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert sum(line.startswith("pyxfer_run_timestamp_seconds{") for line in lines) == 2
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def value(name: str, **labels: str) -> float:
        inside = ",".join(f'{label}="{text}"' for label, text in sorted(labels.items()))
        return values[f"{name}{{{inside}}}"]

    total = value("pyxfer_links_together_bytes_per_second", host="node-7", direction="h2d", engine="ce")
    assert total == pytest.approx(111.0e9, rel=1e-3)
    ends = {"source": "0", "destination": "1"}
    pair = value("pyxfer_links_pair_bytes_per_second", host="node-7", case="read", engine="ce", **ends)
    assert pair == pytest.approx(393.7e9, rel=1e-3)
    kept = value("pyxfer_links_kept_ratio", host="node-7", direction="h2d", device="0", beside="1")
    assert kept == pytest.approx(1.0)
    latency = value("pyxfer_links_latency_seconds", host="node-7", device="0", target="host", quantile="0.5", load="1")
    assert latency == pytest.approx(2362e-9, rel=1e-3)
    only = command("metrics", str(tmp_path / "links.json"), "--device", "1")
    assert sum(line.startswith("pyxfer_run_timestamp_seconds{") for line in only.stdout.splitlines()) == 1
