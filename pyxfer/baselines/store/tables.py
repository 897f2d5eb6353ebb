"""The tables of a store as they are after the last step."""

from .step_1 import BASELINE_RUNS, BASELINES, DOCUMENTS, RUNS
from .step_2 import CELLS, MEASURED

__all__ = ["BASELINES", "BASELINE_RUNS", "CELLS", "DOCUMENTS", "MEASURED", "RUNS"]
