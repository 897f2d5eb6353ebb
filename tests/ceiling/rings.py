"""The settings of a small ring."""

from __future__ import annotations

from pyxfer._upload.settings import RingSettings
from pyxfer._upload.tuning import ChosenSettings

CHOSEN = ChosenSettings(
    RingSettings(threads=2, chunk_bytes=32 << 10, slots=2, fill="plain", spin_us=0), "given", "by a test"
)
