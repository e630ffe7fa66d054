"""Probes of readiness gates: an HTTP GET of which only the status counts.

``machine`` loads it for a configuration that has gates. No credentials are sent, no body is read, and whatever goes
wrong is a result.
"""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING, cast
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from netplug_backends.connections import DeadlineSocket, connect_to, start_tls
from netplug_core.addressing import without_ipv4_brackets
from netplug_core.clock import Deadline
from netplug_core.errors import excerpt
from netplug_core.workload import ProbeResult, redact_url

if TYPE_CHECKING:
    import ssl

__all__ = ["MAX_REDIRECTS", "probe"]

MAX_REDIRECTS = 10
"""How many redirects are followed, as browsers and other clients do."""

_REDIRECTS = (301, 302, 303, 307, 308)
_SAFE = "/%:@!$&'()*+,;=?-._~"  # what stays as it is in a path and a query
_HEADERS = {"Accept": "*/*", "Connection": "close", "User-Agent": "netplug"}


def probe(url: str, *, deadline: Deadline) -> ProbeResult:
    """What the URL answers; redirects are followed."""
    try:
        for _redirect in range(MAX_REDIRECTS + 1):
            status, location = _get(urlsplit(without_ipv4_brackets(url)), deadline)
            if status not in _REDIRECTS or not location:
                return ProbeResult(status=status)
            target = _find_target(url, location)
            if target is None:
                return ProbeResult(problem=f"status {status}, to {excerpt(redact_url(location))}, which is no http URL")
            url = target
    except TimeoutError:
        return ProbeResult(problem="no answer in time")
    except OSError as error:
        return ProbeResult(problem=error.strerror or str(error))
    except (http.client.HTTPException, ValueError) as error:
        return ProbeResult(problem=excerpt(f"no answer in HTTP: {type(error).__name__} {error}".rstrip()))
    return ProbeResult(problem=f"more than {MAX_REDIRECTS} redirects")


def _get(address: SplitResult, deadline: Deadline) -> tuple[int, str]:
    """The status of the reply, and where it redirects to."""
    is_tls = address.scheme == "https"
    host, port = address.hostname or "", address.port or (443 if is_tls else 80)
    plain = connect_to(host, port, deadline)
    try:
        if is_tls:
            plain = start_tls(plain, _tls_context(), host, deadline)
        connection = http.client.HTTPConnection(host, port)
        # http.client only sends, receives and closes, all of which a DeadlineSocket does.
        connection.sock = cast("socket.socket", DeadlineSocket(plain, deadline))
        connection.request("GET", _request_target(address), headers={"Host": _host_header(address), **_HEADERS})
        response = connection.getresponse()
        return response.status, response.headers.get("Location", "")
    finally:
        plain.close()


def _find_target(url: str, location: str) -> str | None:
    """The URL to which the reply of a URL redirects; None if it is not one of HTTP."""
    try:
        target = without_ipv4_brackets(urljoin(url, without_ipv4_brackets(location)))
        parts = urlsplit(target)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its text would quote a part of what may be a password
        return None
    return target if is_http else None


def _request_target(address: SplitResult) -> str:
    query = f"?{address.query}" if address.query else ""
    return quote(f"{address.path or '/'}{query}", safe=_SAFE)


def _host_header(address: SplitResult) -> str:
    """The host as the URL has it, without user and password (RFC 9110, 7.2)."""
    return address.netloc.rpartition("@")[2].encode("idna").decode()


def _tls_context() -> ssl.SSLContext:
    """That of any HTTPS client of the machine: the authorities that the system trusts."""
    import ssl

    return ssl.create_default_context()
