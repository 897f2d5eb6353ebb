"""The loops of bench/never_slower.py over host memory: the contents of each way are checked as its row is prepared."""

from __future__ import annotations

import gc

import never_slower_loops
import pytest
from never_slower_peers import PEERS

from pyxfer._document.runs import FrameworkName

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("own_uploaders")]


def test_each_loop_of_a_framework_runs(framework: FrameworkName) -> None:
    for case in never_slower_loops.loops_of(PEERS[framework]("host"), "host"):
        prepared = case.prepare()
        for name, step in {**prepared.ways, **prepared.references}.items():
            prepared.settle(name)
            step()
        assert len(prepared.ways) > 1
        prepared.close()
        del prepared, step
        gc.collect()
