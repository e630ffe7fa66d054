"""The addresses that ``ipam check`` lists, as lines for a person and as an object for a program."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from netplug_cli.formatting import escape_unprintable
from netplug_core.ipam.reporting.address_list import ListedAddress
from netplug_core.ipam.reporting.address_use import AddressUse, UseState

__all__ = ["Shown", "address_list_document", "address_list_lines"]


class Shown(enum.Enum):
    """Which addresses are listed."""

    NONE = "none"
    PROBLEMS = "problems"
    ALL = "all"

    def of(self, addresses: Iterable[ListedAddress]) -> tuple[ListedAddress, ...]:
        """Those of some addresses."""
        return tuple(each for each in addresses if self is Shown.ALL or each.problems)


def address_list_lines(addresses: Iterable[ListedAddress]) -> Iterator[str]:
    """A line for each address, with its handle and its problems, as far as it has any."""
    for each in addresses:
        handle = f", handle {each.handle}" if each.handle else ""
        problems = f"; problem: {', '.join(each.problems)}" if each.problems else ""
        yield escape_unprintable(f"{each.address} {_state_text(each.use)}{handle}{problems}")


def address_list_document(addresses: Iterable[ListedAddress]) -> Mapping[str, object]:
    """The object that ``-o json`` prints."""
    return {
        "addresses": [
            {
                "ip": str(each.address),
                "allocated": each.is_allocated,
                "handle": each.handle,
                "state": each.use.state.value,
                "detail": each.use.text,
                "problems": list(each.problems),
            }
            for each in addresses
        ]
    }


def _state_text(use: AddressUse) -> str:
    match use.state:
        case UseState.USED:
            return f"is used by {use.text}"
        case UseState.LEAKED:
            return "is not in use"
        case UseState.COOLING:
            return "cools down"
        case UseState.UNDETERMINED:
            return f"may be in use: {use.text}"
        case _:
            assert_never(use.state)
