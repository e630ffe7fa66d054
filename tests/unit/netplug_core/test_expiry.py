"""When tokens and certificates expire, as they say themselves."""

import base64
import json
from datetime import UTC, datetime

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.clock import SECOND_NS
from netplug_core.expiry import parse_certificate_expiry, parse_token_expiry

NOW_NS = 1_790_000_000 * SECOND_NS
AUTHORITY = trustme.CA()


def jwt(payload: bytes, *, padding: bool = False) -> str:
    text = base64.urlsafe_b64encode(payload).decode()
    return f"e30.{text if padding else text.rstrip('=')}.c2ln"


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("more", ["", "a", "ab", "abc", "ÿ?>"])
def test_the_expiry_is_in_the_token(more: str, *, padding: bool) -> None:
    assert parse_token_expiry(jwt(json.dumps({"exp": 1790000000, "x": more}).encode(), padding=padding)) == NOW_NS


def test_a_fraction_of_a_second_is_a_number() -> None:
    assert parse_token_expiry(jwt(b'{"exp": 1.5}')) == 1_500_000_000


@pytest.mark.parametrize(
    "token, message",
    [
        ("secret", "three parts"),
        ("a.secret", "three parts"),
        ("a.b.c.secret", "three parts"),
        ("e30.secret.c", "JSON in base64"),
        (jwt(b"\xff\xfe"), "JSON in base64"),
        (jwt(b"[" * 100_000), "JSON in base64"),
        (jwt(b"[]"), "claim exp"),
        (jwt(b"{}"), "claim exp"),
        (jwt(b'{"exp": "1790000000"}'), "claim exp"),
        (jwt(b'{"exp": true}'), "claim exp"),
        (jwt(b'{"exp": Infinity}'), "claim exp"),
        (jwt(b'{"exp": NaN}'), "claim exp"),
        (jwt(b'{"exp": 1e300}'), "claim exp"),
    ],
)
def test_a_token_without_a_usable_expiry_is_refused_and_not_shown(token: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_token_expiry(token)
    assert "secret" not in str(caught.value)


def issue(not_after: datetime) -> bytes:
    return AUTHORITY.issue_cert("client", not_after=not_after).cert_chain_pems[0].bytes()


@pytest.mark.parametrize("year", [2030, 2049, 2050, 2999])
def test_the_expiry_is_in_the_certificate(year: int) -> None:
    end = datetime(year, 12, 31, 23, 59, 58, tzinfo=UTC)
    pem = b"Bag Attributes\n" + issue(end) + AUTHORITY.cert_pem.bytes()
    assert parse_certificate_expiry(pem) == int(end.timestamp()) * SECOND_NS


def test_a_year_of_two_digits_may_be_of_the_last_century() -> None:
    utc, replaced = b"\x17\x0d301231235958Z", b"\x17\x0d991231235958Z"
    der = base64.b64decode(b"".join(issue(datetime(2030, 12, 31, 23, 59, 58, tzinfo=UTC)).splitlines()[1:-1]))
    assert utc in der
    assert parse_certificate_expiry(pem_of(der.replace(utc, replaced))) == 946_684_798 * SECOND_NS


def pem_of(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----"])
def test_a_text_without_a_certificate_is_refused(pem: bytes) -> None:
    with pytest.raises(ValueError, match="a certificate in PEM is expected"):
        parse_certificate_expiry(pem)


# A sequence of a sequence of three numbers, and then what is no validity, or no time.
TBS = b"\x02\x01\x01" * 3
BROKEN = [
    b"\x30\x0d\x30\x0b" + TBS + b"\x02\x00",
    b"\x30\x11\x30\x0f" + TBS + b"\x30\x04\x17\x00\x17\x00",
    b"\x30\x1e\x30\x1c" + TBS + b"\x30\x11\x17\x00\x16\x0d301231235958Z",
]


@pytest.mark.parametrize("der", [b"", b"\x30", b"\x30\x84\xff\xff\xff\xff", *BROKEN])
def test_what_is_no_certificate_is_refused(der: bytes) -> None:
    with pytest.raises(ValueError, match="a certificate of X"):
        parse_certificate_expiry(pem_of(der) if der else pem_of(b"\0"))


@given(cut=st.integers(0, 300), at=st.integers(0, 300), byte=st.integers(0, 255))
def test_damage_is_refused_or_read_and_nothing_else(cut: int, at: int, byte: int) -> None:
    whole = base64.b64decode(b"".join(issue_once().splitlines()[1:-1]))
    for damaged in (whole[:cut], whole[:at] + bytes([byte]) + whole[at + 1 :]):
        try:
            found = parse_certificate_expiry(pem_of(damaged))
        except ValueError:
            continue
        assert isinstance(found, int)


_ISSUED: list[bytes] = []


def issue_once() -> bytes:
    """One certificate for all examples of a property."""
    if not _ISSUED:
        _ISSUED.append(issue(datetime(2030, 1, 1, tzinfo=UTC)))
    return _ISSUED[0]
