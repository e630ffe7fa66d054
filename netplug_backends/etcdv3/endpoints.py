"""Where one member of the cluster answers: the URLs of the configuration as values."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from attrs import frozen

from netplug_core.errors import ConfigurationError

__all__ = ["Endpoint", "parse_endpoints"]

_SCHEMES = ("http", "https")
_PORT = 2379
_ACCEPTED = "give http://host:port or https://host:port, more of them after commas"


@frozen(order=True)
class Endpoint:
    """One member's address. An IPv6 address stands in ``host`` without its brackets."""

    scheme: str
    host: str
    port: int

    @property
    def is_secure(self) -> bool:
        """Whether the member is spoken to over TLS."""
        return self.scheme == "https"

    @property
    def target(self) -> str:
        """The address as ``host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.target}"


def parse_endpoints(urls: Sequence[str]) -> tuple[Endpoint, ...]:
    """The addresses that URLs name, each once, in their order.

    Raises:
        ConfigurationError: there are none, or one is no URL of a member.
    """
    if not urls:
        raise ConfigurationError("etcd_endpoints", "", f"no etcd endpoints specified: {_ACCEPTED}")
    return tuple(dict.fromkeys(map(_parsed, urls)))


def _parsed(url: str) -> Endpoint:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refusal(url) from None
    # A user and a password in the URL would travel to logs with it; they have settings of their own.
    if parts.scheme not in _SCHEMES or not parts.hostname or _has_more(parts):
        raise _refusal(url)
    return Endpoint(parts.scheme, parts.hostname, _PORT if port is None else port)


def _has_more(parts: SplitResult) -> bool:
    return "@" in parts.netloc or parts.path not in ("", "/") or bool(parts.query or parts.fragment)


def _refusal(url: str) -> ConfigurationError:
    return ConfigurationError("etcd_endpoints", "…" if "@" in url else url, _ACCEPTED)
