"""The marker of a worker's current step, which is readable after its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyxfer._frameworks.messages import Mark, Marker


@pytest.fixture
def marker() -> Iterator[Marker]:
    marker = Marker()
    yield marker
    marker.close()


def test_nothing_is_marked_at_first(marker: Marker) -> None:
    assert marker.read() is None


def test_a_step_is_read_through_another_handle(marker: Marker) -> None:
    Marker(marker.handle).set("torch.to", 4096, "timed")
    assert marker.read() == Mark("torch.to", 4096, "timed")


def test_a_shorter_step_replaces_a_longer_one(marker: Marker) -> None:
    marker.set("tf.data-prefetch-compatible", 1 << 30, "verified")
    marker.set("jax.x", 1, "timed")
    assert marker.read() == Mark("jax.x", 1, "timed")


def test_a_cleared_step_is_not_read(marker: Marker) -> None:
    marker.set("torch.to", 4096, "timed")
    marker.clear()
    assert marker.read() is None


def test_a_long_name_is_cut(marker: Marker) -> None:
    marker.set("mine." + "x" * 1000, 4096, "timed")
    assert marker.read() is None
