"""Parts of charts: their data, plots and titles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def values_of(spec: Any) -> Iterator[dict[str, Any]]:
    """Every datum of a specification."""
    if isinstance(spec, dict):
        yield from spec.get("data", {}).get("values", ())
        for part in spec.values():
            yield from values_of(part)
    elif isinstance(spec, list):
        for part in spec:
            yield from values_of(part)


def plots_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec.get("vconcat", [spec]))


def beyond_of(spec: Any) -> list[dict[str, Any]]:
    """The data of the arrows for what lies beyond an axis."""
    return [value for value in values_of(spec) if "beyond" in value]


def layers_of(plot: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The layers of a plot that draw a mark, also those in groups of layers."""
    if "mark" in plot:
        yield plot
    for layer in plot.get("layer", ()):
        yield from layers_of(layer)


def titles_of(spec: dict[str, Any]) -> list[str]:
    return [" ".join(plot["title"]["text"]).replace("\u00a0", " ") for plot in plots_of(spec)]
