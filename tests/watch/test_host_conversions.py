"""Casts and permutations on the host: which statements make them, how long they take, and the advice."""

from __future__ import annotations

import runpy
import textwrap
import time
from dataclasses import dataclass, replace
from pathlib import Path
from threading import get_native_id
from typing import Any

import numpy as np
import pytest
from watch.windows import H2D, LOADER, MAIN, Script, analysed, at, flat, make_window, steps_at

from pyxfer._document.watches import Watched
from pyxfer._watch.device_records import device_records, periods_of
from pyxfer._watch.framework_calls import CALLS
from pyxfer._watch.host_conversions import MIN_SAMPLES, conversions_of
from pyxfer._watch.marks import LineSampler, Seen
from pyxfer._watch.parts import timed
from pyxfer._watch.source_lines import Conversion, Source
from pyxfer._watch.window import load_window, save_window

IMPORTS = """\
import cupy as cp
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import tensorflow as tf
import torch
from numpy import float32 as single
"""


def found_in(body: str, line: int = -1) -> Conversion | None:
    """What a line of a function converts, the last one by default; without the number of its first line."""
    text = f"{IMPORTS}def step(x, device, model):\n{textwrap.indent(body, '    ')}\n"
    lines = body.splitlines()
    found = Source(text).conversion_at(
        text[: text.index(textwrap.indent(body, "    "))].count("\n") + 1 + lines.index(lines[line])
    )
    return None if found is None else replace(found, first=0)


FLOAT32, HALF = Conversion(dtype="float32"), Conversion(dtype="float16")
TO_NCHW = Conversion(permutes=True, layout="NHWC->NCHW")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("y = x.astype(np.float32)", FLOAT32),
        ("y = x.astype(dtype=np.float32, copy=False)", FLOAT32),
        ("y = x.astype('float32')", FLOAT32),
        ("y = x.astype('<f4')", FLOAT32),
        ("y = x.astype(single)", FLOAT32),
        ("y = x.astype(float)", Conversion(dtype="float64")),
        ("y = x.astype(ml_dtypes.bfloat16)", Conversion(dtype="bfloat16")),
        ("y = x[0].astype(np.float16)", HALF),
        ("y = self.images['train'].half()", HALF),
        ("y = x.get('images').half()", replace(HALF, others=("get()",))),
        ("return x.float()", FLOAT32),
        ("y = x.half()", HALF),
        ("y = x.to(torch.float32)", FLOAT32),
        ("y = x.type(torch.half)", HALF),
        ("y = torch.as_tensor(x, dtype=torch.float32)", FLOAT32),
        ("y = np.float32(x)", FLOAT32),
        ("y = np.asarray(x, np.float32)", FLOAT32),
        ("with tf.device('/CPU:0'):\n    y = tf.cast(x, tf.float32)", FLOAT32),
        ("y = x.astype(np.float32) / 255", replace(FLOAT32, scales=True)),
        ("y = x.float().mul(1 / 255)", replace(FLOAT32, scales=True)),
        ("y = x.permute(0, 3, 1, 2).contiguous()", TO_NCHW),
        ("y = x.permute((0, -1, 1, 2)).contiguous()", TO_NCHW),
        ("y = x.transpose(0, 3, 1, 2).copy()", TO_NCHW),
        ("y = np.ascontiguousarray(x.transpose(0, 3, 1, 2))", TO_NCHW),
        ("y = np.ascontiguousarray(np.transpose(x, [0, 3, 1, 2]))", TO_NCHW),
        ("y = np.ascontiguousarray(x.transpose(2, 1, 0, 3))", Conversion(permutes=True, layout="ABCD->CBAD")),
        ("y = x.transpose(1, 2).contiguous()", Conversion(permutes=True)),
        ("y = np.ascontiguousarray(np.moveaxis(x, -1, 1))", Conversion(permutes=True)),
        ("y = np.ascontiguousarray(x.T, dtype=np.float32)", Conversion(dtype="float32", permutes=True)),
        ("y = x.permute(0, 3, 1, 2).float().contiguous()", replace(TO_NCHW, dtype="float32")),
        ("y = x.to(device, torch.float32)", replace(FLOAT32, sent=True)),
        ("y = torch.tensor(x, dtype=torch.float32, device='cuda')", replace(FLOAT32, sent=True)),
        ("y = torch.from_numpy(x.astype(np.float32)).to(device, non_blocking=True)", replace(FLOAT32, sent=True)),
        ("y = jax.device_put(x.astype(np.float32))", replace(FLOAT32, sent=True)),
        ("y = cp.asarray(x.astype(np.float16))", replace(HALF, sent=True)),
        ("y = x.float().to('cpu')", FLOAT32),
        ("y = np.frombuffer(x, np.uint8).astype(np.float32)", replace(FLOAT32, source="uint8")),
        ("y = load(x).astype(np.float32)", replace(FLOAT32, others=("load()",))),
        ("y = model(x.float())", replace(FLOAT32, others=("model()",))),
        ("y = (x.float() - model.mean) / 2", replace(FLOAT32, scales=True, others=("arithmetic",))),
        ("y, z = x.float(), x.half()", FLOAT32),
    ],
)
def test_a_statement_converts_on_the_host(line: str, found: Conversion) -> None:
    assert found_in(line) == found


@pytest.mark.parametrize(
    "line",
    [
        "y = x / 255",  # of which dtype x is, the line does not say
        "y = x.astype(np.int64)",
        "y = x.astype(model.dtype)",
        "y = np.float32(3)",
        "y = np.array([x, 1], np.float32)",
        "y = x.permute(0, 3, 1, 2)",  # a view
        "y = x.transpose(0, 3, 1, 2).clone()",  # in the order of memory
        "y = x.contiguous()",
        "y = x.to(device).float()",
        "y = x.cuda().permute(0, 3, 1, 2).contiguous()",
        "y = x.to(device, torch.float32, non_blocking=True)",
        "y = tf.cast(x, tf.float32)",
        "y = x.astype(jnp.float32)",
        "y = jnp.asarray(x, jnp.float32)",
        "y = x.astype(cp.float32)",
        "y = x.cpu().numpy().astype(np.float64)",
        "y = x.get().astype(np.float64)",
        "y = jax.device_get(x).astype(np.float64)",
        "y = cp.asarray(x).astype(np.float16)",
        "x = x.to(device)\nx = x.float()",
        "x, y = x.to(device), 1\nx = x.half()",
        "y = np.zeros(3, np.float32)\ny = y.astype(np.float32)",
        "x = x.astype(np.float32)\nx = x + 1",
        "y = lambda: x.float()",
        "for y in x.float():\n    pass",
    ],
)
def test_a_statement_that_may_not_convert_on_the_host_does_not(line: str) -> None:
    assert found_in(line, 0 if line.startswith("for") else -1) is None


@pytest.mark.parametrize(
    ("body", "line", "found"),
    [
        ("y = x.astype(np.float32)\ny = torch.from_numpy(y)\ny.to(device)", 0, replace(FLOAT32, sent=True)),
        ("y = x.astype(np.float32)\nz = y.sum()\nx.to(device)", 0, FLOAT32),
        (
            "y = np.zeros(8, np.uint8)\ny = y.astype(np.float32)\ny = np.ascontiguousarray(y.transpose(0, 3, 1, 2))",
            -1,
            Conversion(dtype="float32", source="uint8", permutes=True, layout="NHWC->NCHW"),
        ),
        ("y = x.transpose(0, 3, 1, 2)\ny = np.ascontiguousarray(y)", -1, TO_NCHW),
        ("y = x.astype(\n    np.float32,\n)", 1, FLOAT32),
    ],
)
def test_a_function_is_read_from_its_first_statement_to_its_last(body: str, line: int, found: Conversion) -> None:
    assert found_in(body, line) == found


def test_statements_that_convert_the_same_array_have_the_first_line_of_the_first() -> None:
    source = Source("y = x.float()\nz = 1\ny = y.permute(0, 3, 1, 2).contiguous()\n")
    assert [found and found.first for found in map(source.conversion_at, (1, 2, 3))] == [1, None, 1]


def test_a_line_is_in_the_innermost_function() -> None:
    source = Source("x = x.to('cuda')\ndef outer(x):\n    def inner(x):\n        return x.float()\n")
    assert source.conversion_at(4) is not None


# --- the time at a line ----------------------------------------------------------------------------------------------

LINE = "train.py:2 in step"
CAST = "import numpy as np\nx = x.astype(np.float32)\n"
SENT = 40_000_000
STEP = 20_000.0


@dataclass(frozen=True)
class Loop:
    """Steps of 20 ms that cast for 8 ms, sampled every millisecond, send and compute."""

    source: str = CAST
    busy: bool = False
    calling: bool = False
    thread: int = MAIN
    sends: bool = True
    every: float = 1_000.0
    turns: int = 10
    framework: str = "torch"
    stepped: bool = True

    def watch(self, folder: Path) -> Watched:
        path = folder / "train.py"
        path.write_text(self.source, encoding="utf-8")
        script, samples = Script(), []
        for turn in range(self.turns):
            begin = turn * STEP
            samples += [
                Seen(at(begin + tick), self.thread, LINE if tick < 8_000 else "train.py:9 in step")
                for tick in map(float, range(500, int(STEP), int(self.every)))
            ]
            if self.busy:
                script.kernel(begin, begin + 8_000)
            if self.calling:
                script.call("cudaMalloc", begin, begin + 8_000)
            if self.sends:
                script.copy(H2D, begin + 8_000, begin + 10_000, nbytes=SENT, pageable=True)
            script.kernel(begin + 10_000, begin + STEP)
        steps = steps_at(*((turn * STEP, turn * STEP, (turn + 1) * STEP) for turn in range(self.turns * self.stepped)))
        window = make_window(script, self.turns * STEP, steps, seen=tuple(samples), threads={MAIN: "MainThread"})
        places = {LINE: (str(path), 2)}
        return analysed(replace(window, places=places, framework=self.framework), flat(50.0))


def converted(watched: Watched) -> list[Any]:
    return [row for row in watched.advice if row.code == "convert-on-the-way"]


@pytest.mark.parametrize("stepped", [True, False])
def test_the_gain_is_the_time_at_the_line_while_the_device_does_nothing(tmp_path: Path, stepped: bool) -> None:
    watched = Loop(stepped=stepped).watch(tmp_path)
    (row,) = converted(watched)
    assert row.gain_s == pytest.approx(8e-3 if stepped else 80e-3)
    assert row.gain_share == pytest.approx(0.4)
    assert "train.py:2 in step casts to float32 on the host, in 40.0 % of the samples" in row.text
    assert "pyxfer.upload(x, to='torch', dtype='float32')" in row.text
    assert "if the result of this line is what the program sends" in row.text
    assert "(80 of 200 samples)" in row.worked_out


@pytest.mark.parametrize(
    "loop",
    [
        Loop(busy=True),
        Loop(calling=True),
        Loop(thread=LOADER),
        Loop(sends=False),
        Loop(every=STEP, turns=7),
        Loop(framework="keras-torch"),
        Loop(source="import numpy as np\nx = x.astype(np.int64)\n"),
        Loop(source="x = (\n"),
        Loop(source=""),
    ],
    ids=["device busy", "in a call", "other thread", "nothing sent", "few samples", "no call", "int", "cut", "empty"],
)
def test_without_evidence_there_is_no_advice_to_convert_on_the_way(tmp_path: Path, loop: Loop) -> None:
    watched = loop.watch(tmp_path)
    assert not converted(watched)
    assert "host-conversion" not in {remark.code for remark in watched.remarks}


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("x = x.astype(np.float32)", ("if x is uint8 they are 10 MB",)),
        ("x = x.astype(np.float16)", ("dtype='float16'", "if x is uint8 they are 20 MB")),
        ("x = np.frombuffer(x, np.int16).astype('f4') * 2", ("as int16 they are 20 MB", "divide on the device")),
        ("x = np.frombuffer(x, np.float64).astype('f4')", ("As many bytes cross as now",)),
        ("x = x.permute(0, 3, 1, 2).contiguous()", ("layout='NHWC->NCHW'", "As many bytes cross as now")),
        ("x = x.transpose(1, 2).contiguous()", ("layout='...->...'", "reorders the axes")),
    ],
)
def test_the_advice_says_what_would_cross_and_the_call(tmp_path: Path, line: str, texts: tuple[str, ...]) -> None:
    (row,) = converted(Loop(source=f"import numpy as np\n{line}\n").watch(tmp_path))
    assert not [text for text in texts if text not in row.text]


def test_a_line_that_does_more_has_a_remark_and_no_prediction(tmp_path: Path) -> None:
    watched = Loop(source="import numpy as np\nx = load(x).astype(np.float32)\n").watch(tmp_path)
    assert not converted(watched)
    (remark,) = [remark for remark in watched.remarks if remark.code == "host-conversion"]
    assert "what the same statement does with load()" in remark.text


def test_every_framework_names_itself_or_has_no_upload() -> None:
    assert {name: calls.to for name, calls in CALLS.items() if not name.startswith("keras")} == {
        "": "...",
        **{name: f"'{name}'" for name in ("torch", "tensorflow", "jax", "cupy")},
    }
    assert {calls.to for name, calls in CALLS.items() if name.startswith("keras")} == {None}


def test_sampled_lines_keep_their_files_unless_two_look_alike(tmp_path: Path) -> None:
    sampler = LineSampler()
    names = [str(tmp_path / folder / "train.py") for folder in ("a", "b")]
    first, second = (compile(f"x = {name!r}\n", name, "exec") for name in names)
    sampler._text(first, 1)
    assert sampler.places == {"train.py:1 in <module>": (names[0], 1)}
    sampler._text(second, 1)
    assert sampler.places == {"train.py:1 in <module>": ("", 0)}


PROGRAM = """\
import numpy as np


def step(x):
    x = x.astype(np.float32)
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
"""


def test_the_lines_of_a_program_that_runs_are_one_conversion(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    step, images = runpy.run_path(str(path))["step"], np.ones((16, 128, 128, 3), np.uint8)
    sampler, begin_ns = LineSampler(), time.perf_counter_ns()
    sampler.start()
    while sum("train.py" in sample.line for sample in sampler.samples) < 2 * MIN_SAMPLES:
        step(images)
    sampler.stop()
    window = replace(
        make_window(Script(), 0, seen=tuple(sampler.samples), threads={get_native_id(): "MainThread"}),
        begin_ns=begin_ns,
        end_ns=time.perf_counter_ns(),
        places=sampler.places,
    )
    save_window(window, tmp_path / "window")  # as the process of a script does
    window = load_window(tmp_path / "window")
    capture = window.capture.value
    assert capture is not None
    records = device_records(window, capture)
    (found,) = conversions_of(window, records, timed(periods_of(window), records))
    assert found.line in ("train.py:5 in step", "train.py:6 in step")
    assert found.found == replace(TO_NCHW, dtype="float32", first=5)
    assert found.exposed == found.samples >= MIN_SAMPLES
