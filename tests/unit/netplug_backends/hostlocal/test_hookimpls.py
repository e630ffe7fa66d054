"""The registry finds host-local by its name; where it cannot get a node's CIDR it says why."""

from pathlib import Path

import pytest

from netplug_backends.hostlocal import hookimpls
from netplug_backends.hostlocal.ipam import HostLocalIPAM
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.hookspecs import IPAMContext
from netplug_core.ipam.allocation.request import AssignRequest, Released, ReleaseRequest
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.testing.clock import ManualClock

REQUEST = AssignRequest(handle="net1.c1", node="node-1", wanted=(), owner=(("container", "c1"), ("interface", "eth0")))


def context(folder: Path, subnet: str) -> IPAMContext:
    clock = ManualClock()
    netconf = {"name": "net1", "cniVersion": "1.0.0", "ipam": {"dataDir": str(folder), "subnet": subnet}}
    return IPAMContext(datastore=MemoryDatastore(clock=clock), clock=clock, chance=lambda: 0.5, netconf=netconf)


def test_host_local_is_opened_and_works_with_the_boot_of_this_machine(tmp_path: Path) -> None:
    given = context(tmp_path, "10.0.0.0/24")
    deadline = Deadline.after(given.clock, 60)
    opened = hookimpls.netplug_open_ipam("host-local", given)
    assert opened is not None
    with opened as ipam:
        assert isinstance(ipam, HostLocalIPAM)
        assigned = ipam.assign(REQUEST, NO_ENDPOINT, deadline=deadline)
        assert [str(one.address) for one in assigned.addresses] == ["10.0.0.2"]
        assert (tmp_path / "net1" / ".netplug-boot").read_text().startswith("boot ")
        freed = ipam.release(ReleaseRequest(handle="net1.c1"), NO_ENDPOINT, deadline=deadline)
        assert freed == Released(addresses=(assigned.addresses[0].address,))


def test_other_names_are_not_opened(tmp_path: Path) -> None:
    assert hookimpls.netplug_open_ipam("netplug-ipam", context(tmp_path, "")) is None


def test_a_pod_cidr_without_access_to_the_orchestrator(tmp_path: Path) -> None:
    given = context(tmp_path, "usePodCidr")
    with pytest.raises(
        ConfigurationError, match=r"kubernetes\.kubeconfig: None is not accepted; usePodCidr needs access"
    ):
        HostLocalIPAM(given).assign(REQUEST, NO_ENDPOINT, deadline=Deadline.after(given.clock, 60))


def test_a_pod_cidr_of_a_node_that_does_not_exist(tmp_path: Path) -> None:
    given = context(tmp_path, "usePodCidr")
    asked = IPAMContext(
        datastore=given.datastore,
        clock=given.clock,
        chance=given.chance,
        netconf=given.netconf,
        find_node=lambda _name, _deadline: None,
    )
    with pytest.raises(Unavailable, match="node node-1: the cluster has no node of that name"):
        HostLocalIPAM(asked).probe(REQUEST, deadline=Deadline.after(given.clock, 60))
    assert list(tmp_path.iterdir()) == []
