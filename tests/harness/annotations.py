"""How tests write annotations: by their short names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["ANNOTATION_PREFIX", "prefixed"]

T = TypeVar("T")

ANNOTATION_PREFIX = "cni.projectnetplug.org"
"""The usual prefix, spelled out: tests notice if it changes."""


def prefixed(texts: Mapping[str, T]) -> dict[str, T]:
    """Annotations under their full names."""
    return {f"{ANNOTATION_PREFIX}/{name}": text for name, text in texts.items()}
