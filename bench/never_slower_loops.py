"""Loops of steps that are fed from the host, for never_slower.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from never_slower_peers import Peer

Ways = dict[str, Callable[[], object]]


def loops_of(peer: Peer, device: int | str) -> Iterator[tuple[str, int, Ways]]:
    """The name, the bytes of a batch and the ways of each row."""
    del peer, device
    yield from ()
