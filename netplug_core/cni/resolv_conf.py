"""Settings of name resolution in the format of resolv.conf(5), for the result of an ADD."""

from __future__ import annotations

from netplug_core.ipam.allocation.request import DNS

__all__ = ["parse_resolv_conf"]

_COMMENTS = ("#", ";")


def parse_resolv_conf(text: str) -> DNS:
    """The settings of a file. Lines that mean nothing are skipped; the last ``domain`` counts."""
    found: dict[str, list[str]] = {"nameserver": [], "domain": [], "search": [], "options": []}
    for line in text.splitlines():
        keyword, *values = line.split() or [""]
        if values and not keyword.startswith(_COMMENTS) and keyword in found:
            found[keyword] += values if keyword in ("search", "options") else values[:1]
    return DNS(
        nameservers=tuple(found["nameserver"]),
        domain=found["domain"][-1] if found["domain"] else "",
        search=tuple(found["search"]),
        options=tuple(found["options"]),
    )
