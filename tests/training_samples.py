"""Documents of watched training: two loops of one framework, with the predicted gain of the first."""

from __future__ import annotations

from typing import Any

import msgspec
from samples import make_device, make_environment
from watch_samples import make_watched
from watched_training import INPUT_ADVICE, PHASES, Trained, Training

BLOCKS, BLOCK_STEPS = 8, 5


def make_trained(loop: str, seconds: float, *, cost: float = 0.0, blocks: int = BLOCKS, **verdict: Any) -> Trained:
    """A loop whose steps take `seconds`, and longer by the share `cost` while it is watched."""
    times = {"unwatched": seconds, "watched": seconds * (1 + cost), "after": seconds}
    watched = make_watched()
    changed = msgspec.structs.replace(watched.verdict, **verdict)
    steps_s: dict[str, list[list[float]]] = {phase: [[times[phase]] * BLOCK_STEPS] * blocks for phase in PHASES}
    return Trained(loop, steps_s, msgspec.structs.replace(watched, verdict=changed))


def make_training(framework: str = "torch", *, apart: float = 0.1, **overrides: Any) -> Training:
    """A usual loop, and one whose gain differs from the prediction by the share `apart`."""
    usual = make_trained("usual", 20e-3, cost=0.01, bound_by="input")
    predicted_s = max(advice.gain_s for advice in usual.watched.advice if advice.code in INPUT_ADVICE)
    ahead = make_trained("ahead", 20e-3 - predicted_s / (1 + apart), bound_by="device")
    training = Training(
        framework=framework,
        device=make_device(),
        environment=make_environment(),
        shape={"batch": 128, "side": 224},
        loops=(usual, ahead),
    )
    return msgspec.structs.replace(training, **overrides)
