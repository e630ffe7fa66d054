"""How long credentials are valid, by what they say themselves."""

import base64
import json
from datetime import UTC, datetime

import trustme
from attrs import define

from netplug_cli.node.stores import KnownCredentials
from netplug_core.clock import SECOND_NS
from netplug_core.datastore.protocol import CredentialsInUse
from netplug_core.errors import UnusableFile
from netplug_core.testing.clock import ManualClock

CLOCK = ManualClock()
NOW_S = CLOCK.now_ns() // SECOND_NS
AUTHORITY = trustme.CA()
NO_JSON = "opaque"


def certificate(left_s: int) -> bytes:
    end = datetime.fromtimestamp(NOW_S + left_s, tz=UTC)
    return AUTHORITY.issue_cert("client", not_after=end).cert_chain_pems[0].bytes()


def token(left_s: int) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": NOW_S + left_s}).encode()).decode()
    return f"e30.{claims}.c2ln"


@define
class Opened:
    """A datastore with credentials, or with the error that comes in their place."""

    credentials: CredentialsInUse | Exception | None

    def credentials_in_use(self) -> CredentialsInUse | None:
        if isinstance(self.credentials, Exception):
            raise self.credentials
        return self.credentials


def left_of(*credentials: CredentialsInUse | Exception | None) -> dict[tuple[str, ...], float]:
    known = KnownCredentials(CLOCK)
    for each in credentials:
        known.add(Opened(each).credentials_in_use)
    return known.seconds_left()


def of(certificate: bytes = b"", token: str = "", expires_ns: int | None = None) -> CredentialsInUse:
    return CredentialsInUse(
        access="etcdv3", location="here", certificate=certificate, token=token, expires_ns=expires_ns
    )


def test_certificate_and_token_say_when_they_expire() -> None:
    assert left_of(of(certificate(86_400), token(600))) == {
        ("etcdv3", "here", "certificate"): 86_400,
        ("etcdv3", "here", "token"): 600,
    }


def test_what_their_issuer_said_counts_before_the_token() -> None:
    expires_ns = (NOW_S + 50) * SECOND_NS
    assert left_of(of(token=token(600), expires_ns=expires_ns)) == {("etcdv3", "here", "token"): 50}


def test_what_has_expired_has_a_negative_value() -> None:
    assert left_of(of(token=token(-5))) == {("etcdv3", "here", "token"): -5}


def test_of_several_with_one_name_the_first_to_expire_counts() -> None:
    assert left_of(of(token=token(600)), of(token=token(300)), of(token=token(900))) == {
        ("etcdv3", "here", "token"): 300
    }


def test_what_says_nothing_or_cannot_be_read_has_no_value() -> None:
    unusable = UnusableFile("etcd_cert_file", "/c", "it cannot be read")
    assert left_of(of(), None, of(b"no certificate"), of(token=NO_JSON), unusable) == {}


def test_those_of_a_datastore_are_known_while_it_is_open() -> None:
    known = KnownCredentials(CLOCK)
    with known.used_by(Opened(of(token=token(600)))), known.used_by(object()):
        assert known.seconds_left() == {("etcdv3", "here", "token"): 600}
    assert known.seconds_left() == {}
