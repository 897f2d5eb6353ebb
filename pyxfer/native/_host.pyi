"""The compiled engine over ordinary memory: the interface of `_cuda`, and the submodule `testing`."""

from pyxfer.native import _testing
from pyxfer.native._cuda import *  # noqa: F403 - all of it, the same

testing = _testing
