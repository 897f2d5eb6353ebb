"""What a worker is at, readable after its end."""

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


def test_a_step_is_read_by_whoever_holds_the_file(marker: Marker) -> None:
    Marker(marker.handle).set("torch.to", 4096, "timed")
    assert marker.read() == Mark("torch.to", 4096, "timed")


def test_a_shorter_step_leaves_nothing_of_a_longer_one(marker: Marker) -> None:
    marker.set("tf.data-prefetch-compatible", 1 << 30, "verified")
    marker.set("jax.x", 1, "timed")
    assert marker.read() == Mark("jax.x", 1, "timed")


def test_a_step_that_is_over_is_not_blamed(marker: Marker) -> None:
    marker.set("torch.to", 4096, "timed")
    marker.clear()
    assert marker.read() is None


def test_a_name_of_any_length_breaks_nothing(marker: Marker) -> None:
    marker.set("mine." + "x" * 1000, 4096, "timed")
    assert marker.read() is None
