"""A history as rows for a spreadsheet."""

from __future__ import annotations

from pyxfer import table
from pyxfer.model_store import History

_HEADER = (
    *("host", "runtime", "device", "gpu", "cell", "worker", "taken_at", "run"),
    *("gbps", "low_gbps", "high_gbps", "median_s", "to_median"),
)


def to_csv(history: History) -> str:
    """One row a point, numbers unrounded."""
    rows: list[tuple[table.Cell, ...]] = [
        (
            *(
                group.host,
                group.runtime,
                group.device,
                group.gpu.value,
                group.cell_text,
                group.worker,
                point.taken_at,
                point.run_id,
            ),
            *(point.gbps, point.low_gbps, point.high_gbps, point.median_s, point.change),
        )
        for group in history.groups
        for point in group.points
    ]
    return table.to_csv(_HEADER, rows)
