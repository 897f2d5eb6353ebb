"""The routes through pyxfer's ring on a GPU, in the workers of a run: the traced copies and their memory."""

from __future__ import annotations

import io
import warnings

import pytest

import pyxfer
from pyxfer._frameworks.registry import load_framework
from pyxfer._report.layout import Page
from pyxfer._report.run import print_run

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("gpu_engine")]
# An upload that is smaller than the ring pays for is one copy of the driver, from pageable memory.
SIZES = (4 << 20, 16 << 20)
USUAL = {"torch": "torch.to", "tensorflow": "tf.constant", "cupy": "cupy.asarray", "jax": "jax.device-put"}
each_framework = pytest.mark.parametrize("name", USUAL)


@pytest.fixture(autouse=True)
def _installed(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(name)


@each_framework
def test_each_byte_crosses_once_from_page_locked_memory(name: str) -> None:
    through = [route.name for route in load_framework(name).routes if route.staged]
    run = pyxfer.frameworks([name], route=through, size=SIZES, budget=4.0)
    rows = [row for row in run.measurements if row.route in through]
    assert [worker.ended for worker in run.workers] == ["complete"]
    assert len(rows) == len(through) * len(SIZES)
    for row in rows:
        assert (row.verified.value, row.rate.reason) == (True, None), row.route
        assert row.dma.value is not None, row.dma.reason
        assert (row.dma.value.nbytes, row.dma.value.source) == (row.nbytes, "pinned"), row.route
        assert not {remark.code for remark in row.remarks} & {"wrong-memory", "inflated", "outside"}, row.remarks


@each_framework
def test_images_through_the_ring_are_cast_on_the_gpu(name: str) -> None:
    through = [route.name for route in load_framework(name).routes if route.staged and route.image_batch]
    run = pyxfer.frameworks([name], route=through, workload="image-batch", batch=(1, 32), budget=2.0)
    rows = [row for row in run.measurements if row.route in through]
    assert [(row.batch, row.verified.value, row.rate.reason) for row in rows] == [(1, True, None), (32, True, None)]


@each_framework
def test_the_first_call_makes_the_ring_before_the_trials(name: str) -> None:
    upload = f"{load_framework(name).owner}.upload"
    run = pyxfer.frameworks([name], route=[upload], size=SIZES, direction=["h2d"], budget=2.0, trace=False)
    first, second = [row for row in run.measurements if row.route == upload]
    assert first.first_s.value is not None
    assert second.first_s.value is not None
    assert first.first_s.value > second.first_s.value
    assert (first.elapsed_s or 0.0) < first.first_s.value


@each_framework
def test_an_explained_usual_call_advises_the_upload(name: str) -> None:
    stream = io.StringIO()
    print_run(pyxfer.explain(USUAL[name], "32MiB", budget=8.0), Page(stream, columns=80))
    page = " ".join(stream.getvalue().split())
    advice = page[page.index("Faster routes, measured in the same run") :]
    assert f'pyxfer.upload(x, to="{name}")' in advice or f'pyxfer.prefetch([x], to="{name}")' in advice
    assert "takes ordinary arrays, staged through page-locked memory" in advice
