"""The URLs of an etcd cluster's members as values: the backend connects to them, and ``lint`` judges them."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from attrs import frozen

from netplug_core.addressing import without_ipv4_brackets
from netplug_core.errors import ConfigurationError

__all__ = ["EtcdEndpoint", "parse_endpoints"]

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
