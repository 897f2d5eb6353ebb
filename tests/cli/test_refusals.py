"""Arguments that a verb refuses: with 2 and one line that names them, before anything is measured or written."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from in_process import Command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("ceiling --device host --size 0", "is not above zero"),
        ("ceiling --device host --size lots", "is not a size"),
        ("ceiling --device host --direction sideways", "--direction 'sideways' is unknown: choose one of"),
        ("ceiling --device host --memory cardboard", "--memory 'cardboard' is unknown"),
        ("ceiling --device host --mode teleport", "--mode 'teleport' is unknown"),
        ("ceiling --device host --precision 200%", "is not below 100%"),
        ("ceiling --device host --budget 0s", "is not above zero"),
        ("ceiling --device host --seed -1", "--seed"),
        ("frameworks --device host mxnet", "Unknown framework 'mxnet'. Known are torch"),
        ("frameworks --device host --route torch.too", "fits 'torch.too'. Did you mean torch.to"),
        ("frameworks --device host torch --route 'tf.*'", "No route of torch fits 'tf.*'"),
        ("frameworks --device host --workload training", "--workload 'training' is unknown"),
        ("frameworks --device host --workload image-batch", "no GPU is usable here"),
        ("frameworks --device host --workload image-batch --direction h2d --size 1MiB", "give batches"),
        ("frameworks --device host --batch 8", "name that workload, or give sizes"),
        ("frameworks --device host --workload image-batch --direction h2d --batch none", "'none'"),
        (
            "frameworks --device host --workload image-batch --direction h2d --batch 2000000",
            "more than any GPU holds",
        ),
        ("frameworks --device host --direction both", "--direction 'both' is unknown"),
        ("explain torch.too", "Unknown route 'torch.too'. Did you mean torch.to"),
        ("explain torch.to --size 1MiB,2MiB", "is not a size"),
        ("explain torch.to --direction d2h", "torch.to goes h2d"),
        ("links --group all", "'all' is unknown"),
        ("links --engine tma", "'tma' is unknown"),
        ("links --size 1MiB,2MiB", "is not a size"),
        ("links --device 0,0", "name each device once"),
        ("links --device 9", "is none of the devices"),
        ("links --budget 0s", "--budget"),
        ("baseline save --links --memory pageable", "--memory is for the link of one device"),
        ("baseline save --group pairs", "--group is for links"),
        ("baseline save --links --group ring", "'ring' is unknown"),
        ("baseline save --links --size 1MiB,2MiB", "one size"),
        ("baseline check --device 0,1", "Several devices are for links"),
        ("baseline check --links --device host --require-gpu", "exclude each other"),
        ("--size 64M", "--size"),
        ("--budget 40h", "--budget"),
        ("--precision 0.5", "--precision"),
        ("--budget 1s list", "write it after list"),
        ("list tables", "write pyxfer list, or pyxfer list routes"),
        ("tune --budget soon", "--budget 'soon'"),
        ("baseline save --processes 2 --device host --store s.db", "--processes 2"),
        ("baseline check --tolerance 0.5", "--tolerance '0.5' means 50%"),
        ("baseline check --device host --require-gpu --store s.db", "exclude each other"),
        ("compare a.json b.json --tolerance 0%", "--tolerance"),
        ("compare a.json b.json --fail-on faster:5%", "--fail-on slower:5%"),
        ("compare a.json b.json --fail-on slower", "--fail-on slower:5%"),
        ("compare a.json b.json --fail-on slower:x", "--fail-on slower:SHARE"),
        ("baseline import missing.json --store s.db", "missing.json"),
        ("doctor run.json --budget 2s", "is not measured again"),
        ("doctor run.json --device 1", "is not measured again"),
        ("schema runs", "comparison"),
        ("fleet show none.json --line xml", "'xml' is unknown"),
        ("fleet show none.json --host n3", "add --line"),
        ("fleet show none.json --line npd --export-drain -", "writes no file"),
    ],
)
def test_invalid_arguments_are_refused(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = command(*shlex.split(arguments))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert words in " ".join(ended.stderr.split())
    assert not [word for word in ("starting", "measuring", "Traceback") if word in ended.stderr]
    assert not list(tmp_path.iterdir())
