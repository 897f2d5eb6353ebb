"""One or more documents of each kind, and the text of the first of each."""

from __future__ import annotations

from typing import Any

from baseline.store.making import make_baseline, run_at
from baseline_samples import make_processes, make_sample, slow_pinned
from blocks_samples import make_blocks_run
from doctor.cases import h200, health
from explain_samples import make_explain_run
from files_samples import make_files_run
from fleet_samples import make_fleet, make_host
from framework_samples import make_image_batch_run
from link_samples import make_links
from offload_samples import make_plan
from order_samples import make_orders_run
from samples import make_run
from watch_samples import make_stalled, make_unseen, make_watched
from xfer_samples import row_of, session

from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.samples import Sample
from pyxfer._blocks.layouts import kv_layout
from pyxfer._doctor.examine import examine, examine_run, nearest_known, without_trials
from pyxfer._document import codec
from pyxfer._document.examinations import Examination
from pyxfer._document.machines import Fact

HOST = h200()
NEAREST = nearest_known(HOST)
SAMPLES: dict[str, list[Any]] = {
    "run": [
        make_run(),
        make_explain_run(),
        make_image_batch_run(),
        make_orders_run(),
        make_files_run(),
        make_blocks_run(),
    ],
    "watch": [make_watched(), make_unseen(), make_stalled()],
    "baseline": [make_baseline(name="\u0000 <b>", labels={"a\nb": "c"}), make_baseline(runs=(run_at(),))],
    "comparison": [
        compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.3))),
        compare_samples(make_sample("A"), Sample("B", make_processes(3, 2, memories=("pinned",)))),
    ],
    "examination": [
        Examination(without_trials(HOST), Fact(health()), NEAREST, examine(HOST, health(), NEAREST.value)),
        examine_run(HOST),
    ],
    "pytest": [session(row_of(), row_of("tests/test_b.py::test_other", None))],
}
SAMPLES["links"] = [make_links(groups=("together", "latency", "small")), make_links(1, groups=("local",))]
SAMPLES["host"] = [make_host(), make_host("\u0000 <b>", {"h2d:gpu0:pinned:256MiB": None}, environment=None)]
SAMPLES["fleet"] = [make_fleet()]
SAMPLES["plan"] = [make_plan(), make_plan(layout=kv_layout("llama-8b"), tokens=4096)]
TEXTS = {name: codec.encode(documents[0]) for name, documents in SAMPLES.items()}
