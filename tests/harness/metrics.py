"""Reads metrics in the text format of Prometheus."""

from __future__ import annotations

import re

__all__ = ["series_names", "value_of"]


def value_of(text: bytes, series: str) -> float | None:
    """The value of a series, by its name and labels as they are written; None if it is not there."""
    for line in text.decode().splitlines():
        name, _space, value = line.rpartition(" ")
        if name == series:
            return float(value)
    return None


def series_names(text: bytes) -> frozenset[str]:
    """The names by which series are asked for: those of a histogram are three."""
    names = set[str]()
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text.decode(), re.MULTILINE):
        names |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return frozenset(names)
