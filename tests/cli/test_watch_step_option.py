"""`pyxfer watch --step module:function`: the calls of a function of an unchanged script are its steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli.watched_scripts import COMMAND, Script
from marks import slow
from watch.programs import TIMEOUT_S, environment

from pyxfer._document.watches import Watched

# Every way in which a script binds a function at its top level.
BINDING = """
from __future__ import annotations
import functools, pickle, sys
def plain(x): return x
class Model:
    def step(self, x): return x
    class Inner:
        @staticmethod
        def step(x): return x
assigned = functools.partial(plain)
from os.path import basename as imported
import os.path
if __name__ == "__main__":
    def nested(x: Missing): return x
    try:
        in_try = lambda x: x
    finally:
        pass
match 1:
    case 1:
        def matched(x): return x
pickled = pickle.dumps((plain, Model.step, Model.Inner.step))
for number in range(3):
    plain(number); Model().step(number); Model.Inner.step(number); assigned(number); imported("a"); nested(number)
    in_try(number); matched(number); os.path.isabs("a")
print([name for name in globals() if name[0] != "_"], __doc__, locals() is globals(), nested.__annotations__, pickled)
"""


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A folder for a script."""
    return Script(tmp_path)


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("plain", 6),
        *(slow(path, 3) for path in ("Model.Inner.step", "assigned", "imported", "in_try")),
        slow("matched", 3),
    ],
)
def test_a_function_of_the_script_itself_is_in_main(script: Script, path: str, count: int) -> None:
    result = script.run(BINDING, "--step", f"__main__:{path}", "--export-json", script.report.name)
    alone = script.call([sys.executable, "script.py"])
    assert (result.returncode, result.stdout) == (0, alone.stdout), result.stderr
    steps = Watched.load(script.report).steps
    assert (steps.finder, steps.functions, steps.watched) == ("named", (f"__main__:{path}",), count)


@pytest.mark.parametrize("program", [("-m", "package"), slow(("folder",))], ids=" ".join)
def test_a_function_of_a_module_that_is_run_is_in_main(tmp_path: Path, program: tuple[str, ...]) -> None:
    for place in ("package/__main__.py", "package/part.py", "folder/__main__.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(
            "def step(): pass\nfor _ in range(3): step()\nprint(type(__loader__).__name__, __spec__.name)\n"
        )
    (tmp_path / "package" / "__init__.py").write_text("")
    options = ("--step", "__main__:step", "--export-json", "w.json")
    outputs = [
        subprocess.run(
            [*command, *program],
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
            cwd=tmp_path,
            env=environment(),
        ).stdout
        for command in ((*COMMAND, *options), (sys.executable,))
    ]
    assert outputs[0] == outputs[1]
    assert Watched.load(tmp_path / "w.json").steps.watched == 3


def test_a_function_of_a_module_is_skipped_and_counted(script: Script) -> None:
    (script.folder / "engine.py").write_text("class Model:\n    def generate(self, x):\n        return x\n")
    text = """
        from engine import Model
        model = Model()
        print([model.generate(number) for number in range(9)][-1])
    """
    options = ("--step", "engine:Model.generate", "--skip", "2", "--steps", "4", "--export-json", script.report.name)
    result = script.run(text, *options)
    assert (result.returncode, result.stdout) == (0, "8\n"), result.stderr
    assert "steps   calls of engine:Model.generate (--step)" in result.stderr
    watched = Watched.load(script.report)
    assert (watched.ended, watched.steps.skipped, watched.steps.watched) == ("complete", 2, 4)


def test_an_exception_of_a_counted_call_is_shown_as_without_a_watch(script: Script) -> None:
    text = """
        def f(x):
            return 1 / x
        def g():
            try:
                return f(0)
            except ZeroDivisionError as error:
                raise ValueError("its own") from error
        def h(x):
            return f(x)
        try:
            g()
        except ValueError:
            h("text")
    """
    result = script.run(text, "--step", "__main__:f")
    alone = script.call([sys.executable, "script.py"])
    assert result.returncode == alone.returncode == 1
    assert alone.stderr.strip() in result.stderr


def test_steps_that_the_script_marks_itself_have_precedence(script: Script) -> None:
    text = """
        import pyxfer
        def f(): pass
        f()
        with pyxfer.watch(device="host", ceilings=None) as w:
            for _ in range(3):
                with w.step():
                    f()
        print(w.result.steps.watched, w.result.steps.finder)
    """
    result = script.run(text, "--step", "__main__:f")
    assert (result.returncode, result.stdout) == (0, "3 None\n"), result.stderr


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("email:nothing", "the module 'email' has no 'nothing'"),
        slow("email:message_from_string", "email:message_from_string was never called in this process"),
        slow("wave:open", "the script did not import 'wave'; a function of the script itself is in __main__"),
    ],
)
def test_a_function_that_is_not_found_or_not_called_is_a_remark(script: Script, step: str, problem: str) -> None:
    result = script.run("import email, sys; sys.exit(5)", "--step", step, "--export-json", script.report.name)
    assert result.returncode == 5
    remark = Watched.load(script.report).remarks[0]
    assert (remark.code, remark.text) == ("step-function", f"--step: {problem}")


@pytest.mark.parametrize("step", ["nosuch:f", "__main__:nosuch", *map(slow, ["f", "script.py:f"])])
def test_a_function_that_cannot_be_found_exits_with_2_before_the_script_starts(script: Script, step: str) -> None:
    result = script.run("print('started')", "--step", step)
    assert (result.returncode, result.stdout) == (2, "")
    assert "--step" in result.stderr
    assert "Traceback" not in result.stderr
