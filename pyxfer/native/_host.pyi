"""The compiled engine on the host runtime: the names of `_cuda`, and `testing`."""

from pyxfer.native import _testing
from pyxfer.native._cuda import *  # noqa: F403 - the same names

testing = _testing
