"""When a credential expires, as it says itself. Nothing is verified: the server does that."""

from __future__ import annotations

import base64
import json
import re

from netplug_core.clock import SECOND_NS, parse_time

__all__ = ["parse_certificate_expiry", "parse_token_expiry"]

_SEGMENTS = 3
_MAX_S = 1e12  # far beyond the years that a time can be written in
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _SEQUENCE, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x30, 0x17, 0x18
_BEFORE_VALIDITY = 3  # serial number, signature algorithm, issuer
_LONG_LENGTH = 0x80
_YEARS_OF_1900 = 50  # RFC 5280: a year of two digits from 50 on is one of the 20th century
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z", re.ASCII)


def parse_token_expiry(token: str) -> int:
    """When a token expires (nanoseconds since 1970-01-01 UTC), as its claim ``exp`` says.

    Raises:
        ValueError: it is not a JSON Web Token with that claim. The text has no part of the token.

    Source: RFC 7519, section 4.1.4.
    """
    segments = token.split(".")
    if len(segments) != _SEGMENTS:
        raise ValueError("a token of three parts is expected")
    payload = segments[1].rstrip("=")
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        raise ValueError("the second part of a token is expected to be JSON in base64") from None
    expires = claims.get("exp") if isinstance(claims, dict) else None
    # An infinite number is none, and True is an int.
    if isinstance(expires, bool) or not isinstance(expires, int | float) or not abs(expires) < _MAX_S:
        raise ValueError("the claim exp of a token is expected to be a number of seconds")
    return int(expires * SECOND_NS)


def parse_certificate_expiry(pem: bytes) -> int:
    """When the first certificate of a PEM text expires (nanoseconds since 1970-01-01 UTC): the client's own.

    Raises:
        ValueError: the text has no certificate that can be read.

    Source: RFC 5280, sections 4.1 and 4.1.2.5.
    """
    found = _CERTIFICATE.search(pem)
    if found is None:
        raise ValueError("a certificate in PEM is expected")
    try:
        return _not_after(base64.b64decode(found[1]))
    except (ValueError, IndexError):
        raise ValueError("a certificate of X.509 is expected") from None


def _not_after(der: bytes) -> int:
    _tag, start, end = _element(der, 0)  # Certificate
    _tag, at, end = _element(der, start)  # tbsCertificate
    tag, _start, after = _element(der, at)
    at = after if tag == _VERSION else at
    for _ in range(_BEFORE_VALIDITY):
        _tag, _start, at = _element(der, at)
    tag, start, end = _element(der, at)
    if tag != _SEQUENCE:
        raise ValueError("validity")
    _tag, _start, at = _element(der, start)  # notBefore
    tag, start, end = _element(der, at)
    return _time(tag, der[start:end].decode("ascii"))


def _time(tag: int, text: str) -> int:
    if tag == _UTC_TIME:
        text = f"{'19' if int(text[:2]) >= _YEARS_OF_1900 else '20'}{text}"
    found = _TIME.fullmatch(text)
    if found is None or tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError("time")
    year, month, day, hour, minute, second = found.groups()
    return parse_time(f"{year}-{month}-{day}T{hour}:{minute}:{second}Z")


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the element at a position, and where its content begins and ends."""
    tag, length, start = der[at], der[at + 1], at + 2
    if length & _LONG_LENGTH:
        count = length & ~_LONG_LENGTH
        length = int.from_bytes(der[start : start + count])
        start += count
    if start + length > len(der):
        raise ValueError("length")
    return tag, start, start + length
