"""Figures that others have published for a workload, to stand beside this host's own."""

from __future__ import annotations

from collections.abc import Sequence

from pyxfer.model import Published, Workload

_SOURCE = "https://github.com/tensorflow/tensorflow/issues/51951"
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def _row(framework: str, label: str, route: str, gpu: str, *mbps: float) -> tuple[str, Published]:
    return framework, Published(label, route, gpu, dict(zip(_BATCHES, mbps, strict=True)), _SOURCE)


_IMAGE_BATCH = (
    _row(
        *("tensorflow", "TF", "tf.function", "RTX 2080 Ti"),
        *(364, 874, 1223, 2807, 2376, 2792, 3555, 4112, 2089, 2189),
    ),
    _row(
        *("tensorflow", "TF", "tf.function", "GTX 1060"),
        *(401, 598, 1260, 1750, 2394, 3138, 3652, 3976, 1692, 1693),
    ),
    _row(
        *("tensorflow", "TF jit", "tf.function-jit", "GTX 1060"),
        *(317, 590, 1372, 1753, 2479, 3504, 6524, 4683, 1731, 1776),
    ),
    _row(
        *("torch", "PyTorch", "torch.to", "RTX 2080 Ti"),
        *(2540, 4013, 4594, 6283, 8537, 9351, 8548, 9048, 9320, 9352),
    ),
    _row(
        *("torch", "PyTorch", "torch.to", "GTX 1060"),
        *(2634, 3630, 4524, 5448, 6379, 6549, 6715, 6895, 6965, 6958),
    ),
)


def published_for(workload: Workload, frameworks: Sequence[str]) -> tuple[Published, ...]:
    """What has been published of these frameworks."""
    if workload != "image-batch":
        return ()
    return tuple(figures for framework, figures in _IMAGE_BATCH if framework in frameworks)
