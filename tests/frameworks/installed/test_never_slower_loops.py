"""The loops of bench/never_slower.py over host memory: the contents of each way are checked as its row is prepared."""

from __future__ import annotations

import gc

import never_slower_loops
import pytest
from never_slower_peers import PEERS

from pyxfer._document.runs import FrameworkName

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("own_uploaders")]


def test_each_loop_of_a_framework_runs(framework: FrameworkName) -> None:
    peer = PEERS[framework]("host")
    for case in never_slower_loops.loops_of(peer, "host"):
        prepared = case.prepare()
        for name, step in {**prepared.ways, **prepared.references}.items():
            prepared.settle(name)
            step()
        assert len(prepared.ways) > 1
        prepared.close()
        peer.synchronize()  # a step that runs keeps its batch
        del prepared, step
        gc.collect()
