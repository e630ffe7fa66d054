"""Reads metrics in the text format of Prometheus."""

from __future__ import annotations

__all__ = ["value_of"]


def value_of(text: bytes, series: str) -> float | None:
    """The value of a series, by its name and labels as they are written; None if it is not there."""
    for line in text.decode().splitlines():
        name, _space, value = line.rpartition(" ")
        if name == series:
            return float(value)
    return None
