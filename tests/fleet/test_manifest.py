"""`pyxfer fleet manifest`: YAML that a parser reads, and a script that runs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from fleet.stand_ins import make_stand_ins
from in_process import Command

from pyxfer._fleet.launch import HostJob
from pyxfer._fleet.manifest import Deployment, manifest

STRANGE = "x'y\"z; $(touch never) {a: b} # \\ \u2028"
JOB = HostJob(("python", "-m", "pyxfer"), labels={"rack": "r7", "note": STRANGE})


def made(kind: Any, **settings: Any) -> Any:
    return yaml.safe_load(manifest(kind, Deployment(JOB, "pyxfer==0.1.0", **settings)))


def container_of(document: Any) -> Any:
    (container,) = document["spec"]["template"]["spec"]["containers"]
    return container


def test_a_job_has_one_pod_on_each_host_that_takes_its_gpus() -> None:
    document = made("job", hosts=16, gpus=4, name="check")
    assert (document["kind"], document["metadata"]["name"]) == ("Job", "check")
    spec = document["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (16, 16, 0)
    (rule,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["labelSelector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    container = container_of(document)
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert container["command"][-1] == "--export-json=-"
    assert "volumeMounts" not in container


@pytest.mark.parametrize("kind", ["job", "daemonset"])
def test_values_are_words_of_the_command_and_no_part_of_its_script(kind: str) -> None:
    command = container_of(made(kind, claim="fleet"))["command"]
    assert command[:2] == ["sh", "-c"]
    assert "rack" not in command[2]
    words = [word.replace("$$(", "$(") for word in command[3:]]
    assert words[0] == "pyxfer==0.1.0"
    assert f"--label=note={STRANGE}" in words
    assert words[-2:] == ["--name=$(NODE_NAME)", "--export-json=/fleet/$(NODE_NAME).json"]
    assert subprocess.run(["sh", "-n", "-c", command[2].replace("$$(", "$(")], check=False).returncode == 0


def test_documents_go_to_a_claim_or_a_folder_of_the_host() -> None:
    (claimed,) = made("job", claim="fleet")["spec"]["template"]["spec"]["volumes"]
    assert claimed["persistentVolumeClaim"] == {"claimName": "fleet"}
    (of_host,) = made("daemonset", folder="/srv/a 'b")["spec"]["template"]["spec"]["volumes"]
    assert of_host["hostPath"]["path"] == "/srv/a 'b"


def test_an_image_of_the_user_needs_no_installation() -> None:
    assert "pip" in container_of(made("job"))["command"][2]
    own = container_of(made("job", image="registry.example/pyxfer:1"))
    assert own["image"] == "registry.example/pyxfer:1"
    assert "pip" not in own["command"][2]


def test_a_daemon_set_measures_again_after_a_pause() -> None:
    document = made("daemonset", every_s=3600.0)
    assert document["kind"] == "DaemonSet"
    variables = {each["name"]: each.get("value") for each in container_of(document)["env"]}
    assert variables["PAUSE_S"] == "3600"


def run_script(text: str, place: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    file = place / "prolog.sh"
    file.write_text(text, encoding="utf-8")
    assert subprocess.run(["bash", "-n", str(file)], check=False).returncode == 0
    return subprocess.run(["bash", str(file)], capture_output=True, text=True, check=False, env=environment, cwd=place)


def test_the_prolog_leaves_a_document_once_in_its_interval(tmp_path: Path) -> None:
    stand_ins = make_stand_ins(tmp_path / "bin", {})
    script = f'#!/bin/sh\nprintf "%s\\n" "$@" >>{tmp_path}/words\nshift $(($# - 1))\necho document >"$1"\n'
    (tmp_path / "bin/pyxfer").write_text(script, encoding="utf-8")
    folder = tmp_path / "shared 'folder"
    folder.mkdir()
    job = HostJob(labels={"note": STRANGE})
    text = manifest("slurm-prolog", Deployment(job, "pyxfer==0.1.0", folder=str(folder), every_s=3600.0))
    for _ in range(2):
        assert run_script(text, tmp_path, stand_ins.environment).returncode == 0
    (document,) = folder.iterdir()
    assert document.read_text(encoding="utf-8") == "document\n"
    words = (tmp_path / "words").read_text(encoding="utf-8").split("\n")
    assert words.count("host") == 1
    assert f"--label=note={STRANGE}" in words
    assert not (tmp_path / "never").exists()


def test_the_prolog_drains_no_host_when_the_job_fails(tmp_path: Path) -> None:
    stand_ins = make_stand_ins(tmp_path / "bin", {})
    (tmp_path / "bin/pyxfer").write_text("#!/bin/sh\nexit 4\n", encoding="utf-8")
    text = manifest("slurm-prolog", Deployment(HostJob(), "pyxfer==0.1.0", folder=str(tmp_path)))
    assert run_script(text, tmp_path, stand_ins.environment).returncode == 0


def test_the_command_prints_the_manifest(command: Command) -> None:
    ended = command("fleet", "manifest", "--kind", "job", "--host-count", "3", "--label", "rack=r7", "--budget", "15s")
    assert ended.returncode == 0, ended.stderr
    words = container_of(yaml.safe_load(ended.stdout))["command"]
    assert {"--budget=15s", "--label=rack=r7"} <= set(words)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--kind", "pod"),
        ("--kind", "job", "--name", "Name"),
        ("--kind", "job", "--claim", "a b"),
        ("--kind", "job", "--image", "a\nb: c"),
        ("--kind", "slurm-prolog", "--folder", "relative"),
        ("--kind", "slurm-prolog", "--folder", "/a\nb"),
        ("--kind", "slurm-prolog", "--budget", "41s"),
        ("--kind", "job", "--pyxfer", "it's"),
        ("--kind", "job", "--pyxfer", ""),
    ],
)
def test_invalid_options_are_refused(command: Command, arguments: tuple[str, ...]) -> None:
    assert command("fleet", "manifest", *arguments).returncode == 2


def run_container(kind: str, place: Path, words: str) -> subprocess.Popen[str]:
    """The command of a container on this machine, with `words` as the script of the host job."""
    (place / "job").write_text(f"#!/bin/sh\n{words}\n", encoding="utf-8")
    (place / "job").chmod(0o755)
    deployment = Deployment(HostJob((str(place / "job"),)), "pyxfer", image="own")
    command = container_of(yaml.safe_load(manifest(kind, deployment)))["command"]  # type: ignore[arg-type]
    words_here = [word.replace("$$(", "$(").replace("/dev/termination-log", str(place / "said")) for word in command]
    return subprocess.Popen(
        words_here, stdout=subprocess.PIPE, text=True, env={"PATH": "/bin:/usr/bin", "PAUSE_S": "0"}
    )


def test_the_log_of_a_pod_is_the_document_also_if_the_job_fails(tmp_path: Path) -> None:
    with run_container("job", tmp_path, "echo said >&2; echo document; exit 4") as pod:
        log, _ = pod.communicate(timeout=60)
    assert (log, pod.returncode) == ("document\n", 0)
    assert (tmp_path / "said").read_text(encoding="utf-8") == "said\n"


def test_a_pod_of_the_daemon_set_goes_on_after_a_failure_and_ends_when_asked_to(tmp_path: Path) -> None:
    with run_container("daemonset", tmp_path, "echo turn; exit 4") as pod:
        assert pod.stdout is not None
        assert [pod.stdout.readline() for _ in range(3)] == ["turn\n"] * 3
        pod.terminate()
        pod.stdout.read()
    assert pod.returncode == 0
