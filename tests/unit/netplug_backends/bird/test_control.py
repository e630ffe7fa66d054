"""The answers of BIRD's control socket."""

import pytest

from netplug_backends.bird.process import Reply, read_next_hops, read_reply, read_sessions
from netplug_core.addressing import Address, Prefix
from netplug_core.dataplane.bgp import SessionStatus

STATUS = """1000-BIRD 2.0.12
1011-Router ID is 10.240.0.11
 Hostname is vm
 Last reconfiguration on 2026-11-28 11:54:29.470
0024-Graceful restart recovery in progress
   Waiting for 2 channels to recover
0013 Daemon is up and running
"""
PROTOCOLS = """2002-Name       Proto      Table      State  Since         Info
1002-device1    Device     ---        up     2026-11-28 11:54:29
 own4       Kernel     advertised4 up     2026-11-28 11:54:29
 Mesh4_10_240_0_12 BGP        ---        up     2026-11-28 11:54:29  Established
 Mesh4_10_240_0_13 BGP        ---        start  2026-11-28 11:54:29.123  Active        Socket: Connection refused
 Ext        BGP        ---        down   2026-11-28 11:54:29
0000
"""


ROUTES = """1007-Table tunnelled4:
 10.91.2.0/26         unicast [Mesh4_10_240_0_12 11:54:29.123] * (100/?) [i]
1008-\tvia 10.240.0.1 on lan0
1012-\tType: BGP univ
 \tBGP.origin: IGP
 \tBGP.next_hop: 10.240.1.12
 \tBGP.local_pref: 100
1007-10.91.1.7/32         unicast [Mesh4_10_240_0_13 11:54:29.456] * (100/?) [i]
1012-\tBGP.next_hop: 10.240.0.13 fe80::1
0000
"""


def test_routes_have_the_next_hops_that_were_announced_and_not_the_gateways() -> None:
    assert read_next_hops(read_reply(ROUTES.replace("0000\n", "0000 \n"))) == (
        (Prefix.parse("10.91.1.7/32"), Address.parse("10.240.0.13")),
        (Prefix.parse("10.91.2.0/26"), Address.parse("10.240.1.12")),
    )
    assert read_next_hops(read_reply("9001 syntax error, unexpected CF_SYM_UNDEFINED\n")) == ()


def test_an_answer_has_a_code_for_each_line() -> None:
    assert read_reply("0001 BIRD 2.0.12 ready.\n") == Reply(((1, "BIRD 2.0.12 ready."),))
    found = read_reply(STATUS)
    assert (found.code, found.text) == (13, "Daemon is up and running")
    assert found.texts(24) == ("Graceful restart recovery in progress", "Waiting for 2 channels to recover")
    assert found.texts(1011)[1:] == ("Hostname is vm", "Last reconfiguration on 2026-11-28 11:54:29.470")


@pytest.mark.parametrize("text", ["", " continued\n", "hello\n", "12 too short\n", "0001_other\n"])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match="BIRD"):
        read_reply(text)


def test_sessions_are_the_protocols_of_bgp() -> None:
    assert read_sessions(read_reply(PROTOCOLS.replace("0000\n", "0000 \n"))) == (
        SessionStatus(name="Ext", is_established=False, since="2026-11-28 11:54:29"),
        SessionStatus(name="Mesh4_10_240_0_12", is_established=True, state="Established", since="2026-11-28 11:54:29"),
        SessionStatus(
            name="Mesh4_10_240_0_13",
            is_established=False,
            state="Active",
            since="2026-11-28 11:54:29",
            error="Socket: Connection refused",
        ),
    )
