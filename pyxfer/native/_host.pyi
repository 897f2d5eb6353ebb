"""The compiled engine over ordinary memory: the face of `_cuda`, and `testing` beside it."""

from pyxfer.native import _testing
from pyxfer.native._cuda import *  # noqa: F403 - all of it, the same

testing = _testing
