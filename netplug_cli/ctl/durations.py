"""Durations on a command line. A module of its own, because ``version --client`` loads no kind of resource."""

from __future__ import annotations

import re

import click

from netplug_cli.formatting import DURATION_UNITS

__all__ = ["parse_duration"]

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_MAX_DIGITS = 6


def parse_duration(text: str) -> int:
    """Seconds, more than none, that are given as ``90s``, ``5m``, ``1h30m`` or ``2d``.

    Raises:
        click.BadParameter: they are not.
    """
    match = _DURATION.fullmatch(text)
    numbers = match.groups(default="0") if match else ()
    seconds = sum(
        int(number[:_MAX_DIGITS]) * unit for number, unit in zip(numbers, DURATION_UNITS.values(), strict=False)
    )
    if not seconds or any(len(number) > _MAX_DIGITS for number in numbers):
        raise click.BadParameter(f"{text!r} is not a duration; expected one such as 90s, 5m, 1h30m or 2d")
    return seconds
