"""The image-batch workload as tables."""

from __future__ import annotations

import io
import re

import msgspec
import pytest
from framework_samples import IMAGE_BYTES, make_image_batch_run, make_refused
from pages import line_with, printed
from samples import MARKUP

from pyxfer._document import runs
from pyxfer._report.layout import Page
from pyxfer._report.run import print_run


def page_of(run: runs.Run) -> str:
    return printed(lambda page: print_run(run, page))


def tables(text: str, framework: str, name: str) -> str:
    """The table below a name in a framework's part."""
    part = text[re.search(rf"^{framework} [0-9.+a-z]+: h2d", text, re.MULTILINE).end() :]  # type: ignore[union-attr]
    part = part[part.index(f"\n{name}\n") + 1 :]
    return re.split(r"\n\n(?=[a-zA-Z])", part, maxsplit=1)[0]


def row_of(table: str, batch: int) -> list[str]:
    return next(line.split() for line in table.splitlines() if line.split()[:1] == [str(batch)])


def test_published_figures_of_unmeasured_routes_are_left_out() -> None:
    published = (runs.Published("JAX", "jax.device-put", "H100", {1: 5.0}, "a page"),)
    text = page_of(make_image_batch_run(published=published))
    assert "H100" not in text
    assert "Published" not in text


def test_published_text_is_harmless() -> None:
    published = (runs.Published("\x1b[31mTF", "tf.function", f"{MARKUP}\x07", {1: 364.0}, "\x1b]0;t\x07there"),)
    text = page_of(make_image_batch_run(published=published))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert f"-  TF on {MARKUP}: there" in text


def test_a_failed_route_has_a_note_with_its_batches() -> None:
    run = make_image_batch_run()
    refused = tuple(
        msgspec.structs.replace(make_refused("tensorflow", "tf.function", m.nbytes, "it broke"), batch=m.batch)
        if m.route == "tf.function" and (m.batch or 0) >= 128
        else m
        for m in run.measurements
    )
    text = page_of(msgspec.structs.replace(run, measurements=refused))
    assert line_with(text, "it broke", "tf.function at") == "a  tf.function at batch 128 to 512: it broke"
    assert re.search(r"^ +512 .* - a +2189", tables(text, "TensorFlow", "MB/s"), re.MULTILINE)


def test_one_batch_is_enough() -> None:
    assert row_of(tables(page_of(make_image_batch_run(batches=(8,))), "PyTorch", "MB/s"), 8)[1] == "51240"


def test_raw_rows_have_the_batch_of_their_size() -> None:
    run = make_image_batch_run(batches=(8,))
    unnamed = tuple(msgspec.structs.replace(m, batch=m.batch if m.nature else None) for m in run.measurements)
    assert f"{8 * IMAGE_BYTES}" not in page_of(msgspec.structs.replace(run, measurements=unnamed))


@pytest.mark.parametrize("columns", [80, 120])
def test_no_table_is_wider_than_the_page(columns: int) -> None:
    stream = io.StringIO()
    print_run(make_image_batch_run(), Page(stream, columns=columns))
    assert max(map(len, stream.getvalue().splitlines())) <= columns
