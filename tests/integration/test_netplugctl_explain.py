"""``ipam explain`` on every store: an address of a pod, a request that fails, and a damaged record."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from netplug_core.addressing import Family
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.ippool import AllowedUse
from tests.harness.tool_stores import SERVERS, make_tool_user
from tests.harness.tool_user import ToolUser, document


@pytest.fixture(params=["sqlite", *SERVERS])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> ToolUser:
    """Somebody whose configuration leads to a store with one pool, for every node."""
    user = make_tool_user(request, tmp_path, request.param)
    made = user.run_command("create", "-f", "-", stdin=document("IPPool", "main", "cidr: 10.68.0.0/24"))
    assert made.status == 0, made
    return user


def assign(user: ToolUser) -> str:
    """Assign an address to a pod as an ADD does."""
    owner = (("namespace", "shop"), ("pod", "web-0"))
    wanted = (Automatic(family=Family.IPV4),)
    request = AssignRequest(handle="net.A1", node="node-a", wanted=wanted, owner=owner, use=AllowedUse.WORKLOAD)
    with user.store() as store:
        ipam = BlockIPAM(datastore=store, clock=user.session.clock, chance=lambda: 0.5)
        return str(ipam.assign(request, NO_ENDPOINT, deadline=user.deadline).addresses[0].address)


def test_an_address_is_explained_by_itself_its_handle_and_its_pod(user: ToolUser) -> None:
    address = assign(user)
    by_address = user.run_command("ipam", "explain", address)
    assert by_address.status == 0, by_address
    rows = dict(line.strip().split(":", 1) for line in by_address.out.splitlines()[1:])
    found = {name: text.strip() for name, text in rows.items()}
    assert by_address.out.startswith(f"{address} is in use\n")
    assert found["Handle"] == "net.A1"
    assert found["Owner"].startswith("namespace=shop node=node-a pod=web-0 timestamp=")
    assert found["Block"].startswith("10.68.0.")
    assert (found["Affinity"], found["Pool"]) == ("confirmed", "IPPool main (10.68.0.0/24) may serve")
    assert "Problem" not in found
    for subject in ("net.A1", "shop/web-0"):
        assert user.run_command("ipam", "explain", subject) == by_address


def test_a_request_that_fails_is_refused_in_the_words_of_the_allocator(user: ToolUser) -> None:
    taken = assign(user)
    patch = '{"spec": {"nodeSelector": "zone == \'b\'"}}'
    assert user.run_command("patch", "ippool", "main", "-p", patch).status == 0
    refused = user.run_command("ipam", "explain", "shop/web-9", "--node", "node-z", "-o", "yaml")
    assert refused.status == 1, refused
    (request,) = yaml.safe_load(refused.out)["requests"]
    assert request["error"]["reason"] == "no-pool-selected"
    assert "IPPool main (10.68.0.0/24) does not select this node (zone == 'b')" in request["error"]["message"]
    specific = user.run_command("ipam", "explain", taken, "--node", "node-z")
    assert f"{taken}: Address already assigned in block" in specific.out


def test_what_a_request_would_get_is_what_it_gets(user: ToolUser) -> None:
    said = user.run_command("ipam", "explain", "--node", "node-a", "-o", "yaml")
    assert said.status == 0, said
    (request,) = yaml.safe_load(said.out)["requests"]
    assert request["addresses"] == [assign(user)]
