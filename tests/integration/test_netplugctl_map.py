"""``ipam map`` on every store: what the allocator and people have stored, drawn as text, as a picture and as a page."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from netplug_core.addressing import Family
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.ippool import AllowedUse
from tests.harness.tool_stores import SERVERS, make_tool_user
from tests.harness.tool_user import ToolUser, document

SVG = "{http://www.w3.org/2000/svg}"
POOLS = document("IPPool", "four", "cidr: 10.68.0.0/28, blockSize: 29"), document("IPPool", "six", "cidr: 'fd68::/64'")


@pytest.fixture(params=["sqlite", *SERVERS])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> ToolUser:
    """Somebody whose configuration leads to a store with a pool of each family, a reservation and a cooldown."""
    user = make_tool_user(request, tmp_path, request.param)
    reserved = document("IPReservation", "routers", "reservedCIDRs: [10.68.0.7, 10.68.0.15]")
    made = user.run_command("create", "-f", "-", stdin="---\n".join((*POOLS, reserved)))
    assert made.status == 0, made
    configured = user.run_command("ipam", "configure", "--ip-cooldown-seconds", "600")
    assert configured.status == 0, configured
    return user


def use_addresses(user: ToolUser) -> None:
    """Addresses for ten pods on three nodes, for which there are two IPv4 blocks; one address is released again."""
    with user.store() as store:
        ipam = BlockIPAM(datastore=store, clock=user.session.clock, chance=lambda: 0.5)
        for number, node in enumerate(("node-a",) * 7 + ("node-b",) * 2 + ("node-c",)):
            families = Family if number == 0 else (Family.IPV4,)
            request = AssignRequest(
                handle=f"net.{number}",
                node=node,
                wanted=tuple(Automatic(family=family) for family in families),
                use=AllowedUse.WORKLOAD,
                owner=(("node", node),),
            )
            ipam.assign(request, NO_ENDPOINT, deadline=user.deadline)
        ipam.release(ReleaseRequest(handle="net.1"), NO_ENDPOINT, deadline=user.deadline)


def test_the_address_space_is_drawn(user: ToolUser) -> None:
    use_addresses(user)
    drawn = user.run_command("ipam", "map")
    assert (drawn.status, drawn.err) == (0, "")
    lines = [line.strip() for line in drawn.out.splitlines()]
    assert "16 addresses in all, 2 blocks of 2 nodes: 8 in use, 1 borrowed, 1 cooling down, 2 reserved, 4 free" in lines
    assert sorted(line for line in lines if line.startswith("[") and len(line) == 10) == ["[##b....r]", "[#~#####r]"]
    assert any(line.endswith("node-a: 6 in use, 1 cooling down, 1 reserved") for line in lines)
    assert any(
        line.endswith("node-b: 2 in use, 1 borrowed, 1 reserved, 4 free; borrowed by node-c (1)") for line in lines
    )
    assert any(line.endswith("/122  node-a: 1 in use, 63 free") for line in lines)
    assert "1.8447e+19 addresses in all, 1 block of 1 node: 1 in use, 63 free, 1.8447e+19 unclaimed" in lines


def test_pictures_and_pages_are_written_whole(user: ToolUser, tmp_path: Path) -> None:
    use_addresses(user)
    for name in ("map.svg", "map.html"):
        written = user.run_command("ipam", "map", "four", "-f", str(tmp_path / name))
        assert (written.status, written.all_output) == (0, "")
    picture = ET.parse(tmp_path / "map.svg").getroot()  # noqa: S314 - our own text
    words = " ".join(element.text or "" for element in picture.iter(f"{SVG}text"))
    assert "node-b: 2 in use, 1 borrowed, 1 reserved, 4 free; borrowed by node-c (1)" in words
    assert (
        "node-b: 2 in use, 1 borrowed, 1 reserved, 4 free; borrowed by node-c (1)"
        in (tmp_path / "map.html").read_text()
    )
    assert "fd68::" not in words
