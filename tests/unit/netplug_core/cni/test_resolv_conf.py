"""Settings of name resolution from a file."""

from netplug_core.cni.result import parse_resolv_conf
from netplug_core.ipam.allocation.request import DNS

TEXT = """\
# made by hand
; likewise
nameserver 192.0.2.53
  nameserver 2001:db8::53 ignored
domain old.example
domain new.example
search a.example b.example
search c.example
options ndots:5 edns0
sortlist 192.0.2.0
nameserver

"""


def test_what_a_file_says() -> None:
    assert parse_resolv_conf(TEXT) == DNS(
        nameservers=("192.0.2.53", "2001:db8::53"),
        domain="new.example",
        search=("a.example", "b.example", "c.example"),
        options=("ndots:5", "edns0"),
    )


def test_an_empty_file_says_nothing() -> None:
    assert parse_resolv_conf("") == DNS()
