"""A setting of resources that is on or off, as their API spells it."""

from __future__ import annotations

import enum

__all__ = ["Switch"]


class Switch(enum.Enum):
    """Whether something is done."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"
