"""The endpoints of a cluster's members: URLs of the configuration as values, and which member is tried first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from attrs import frozen

from netplug_core.addressing import without_ipv4_brackets
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError

__all__ = ["EtcdEndpoint", "MemberSource", "RandomBelow", "StaticMembers", "parse_endpoints"]

RandomBelow = Callable[[int], int]
"""Draws a random number from 0 up to, but not including, its argument."""

_SCHEMES = ("http", "https")
_PORT = 2379
_MAX_LABEL_LENGTH = 63
_ACCEPTED = "give http://host:port or https://host:port, more of them after commas"


@frozen(order=True)
class EtcdEndpoint:
    """One member's address. An IPv6 address in ``host`` has no brackets."""

    scheme: str
    host: str
    port: int

    @property
    def is_secure(self) -> bool:
        """Whether the member uses TLS."""
        return self.scheme == "https"

    @property
    def has_name(self) -> bool:
        """Whether the host is a name, which has to be resolved, and not an address."""
        return ":" not in self.host and not self.host.rpartition(".")[2].isdigit()

    @property
    def target(self) -> str:
        """The address as ``host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.target}"


class MemberSource(Protocol):
    """Finds the members of one cluster."""

    @property
    def location(self) -> str:
        """The cluster, as error texts name it."""
        ...

    def find_members(self, random_below: RandomBelow, *, deadline: Deadline) -> tuple[EtcdEndpoint, ...]:
        """The members in the order to try them; the first is drawn, so that not all nodes use the same member.

        Raises:
            Unavailable: they cannot be found in time.
        """
        ...


@frozen
class StaticMembers:
    """Members that the configuration lists."""

    endpoints: tuple[EtcdEndpoint, ...]

    @property
    def location(self) -> str:
        """The cluster, as error texts name it."""
        return ",".join(map(str, self.endpoints))

    def find_members(self, random_below: RandomBelow, *, deadline: Deadline) -> tuple[EtcdEndpoint, ...]:
        """The members, beginning with one that is drawn."""
        del deadline  # no lookup is needed
        first = random_below(len(self.endpoints))
        return (*self.endpoints[first:], *self.endpoints[:first])


def parse_endpoints(urls: Sequence[str], where: str = "etcd_endpoints") -> tuple[EtcdEndpoint, ...]:
    """The addresses in URLs, each once, in order; ``where`` is the setting that an error names.

    Raises:
        ConfigurationError: there are none, or one is not the URL of a member.
    """
    if not urls:
        raise ConfigurationError(where, "", f"no etcd endpoints specified: {_ACCEPTED}")
    found: dict[EtcdEndpoint, None] = {}
    for url in urls:
        endpoint = _find_endpoint(url)
        if endpoint is None:
            # If a password contains a comma, the part with the @ is another entry of the list.
            shown = "…" if any("@" in each for each in urls) else url
            raise ConfigurationError(where, shown, _ACCEPTED)
        found[endpoint] = None
    return tuple(found)


def _find_endpoint(url: str) -> EtcdEndpoint | None:
    """The address in a URL; None if it is not the URL of a member."""
    try:
        parts = urlsplit(without_ipv4_brackets(url))
        port = _PORT if parts.port is None else parts.port
    except ValueError:
        return None
    host = parts.hostname or ""
    # A user and a password in a URL would appear in logs; they have settings of their own.
    if parts.scheme not in _SCHEMES or not port or not _is_host(host) or _has_extra_parts(parts) or not _is_plain(url):
        return None
    return EtcdEndpoint(parts.scheme, host, port)


def _is_plain(url: str) -> bool:
    """Whether a URL has no blanks (parsing drops some) and only printable characters."""
    return url.isprintable() and " " not in url


def _is_host(host: str) -> bool:
    if ":" in host:
        return True
    return all(0 < len(label) <= _MAX_LABEL_LENGTH for label in host.removesuffix(".").split("."))


def _has_extra_parts(parts: SplitResult) -> bool:
    return "@" in parts.netloc or parts.path not in ("", "/") or bool(parts.query or parts.fragment)
