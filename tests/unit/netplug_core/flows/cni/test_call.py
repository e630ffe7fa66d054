"""What every command shares: the node's name, the MTU, the families, who it is about, and addresses."""

import pytest

from netplug_core.addressing import Family
from netplug_core.cni.dispatch import Plugin
from netplug_core.dataplane.protocol import Forwarding
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.flows.cni.call import (
    ASSIGN_S,
    NoAddressWanted,
    assign,
    link_of,
    machine_file,
    machine_identity,
    mtu_of,
    node_of,
    node_of_delete,
    open_call,
    release,
    release_after_failure,
    require_nodename_file,
    wanted_of,
    workload_of,
)
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.log import Level
from netplug_core.netconf.model import IPAMConfig, NetConf
from netplug_core.resources.ippool import AllowedUse
from netplug_core.testing.faults import FaultyDatastore, LostRace, LostReply, LostRequest
from netplug_core.workload import WorkloadIdentity
from tests.harness.cni_node import DEFAULT_CONTAINER, LOCK_FILE, POD, CNINodeHarness, ContainerInterface
from tests.harness.stores import HookedStore

FILE = "/var/lib/netplug/nodename"
MTU_FILE = "/var/lib/netplug/mtu"
DENIED = PermissionError(13, "Permission denied", FILE)
REQUEST = AssignRequest(handle="h", node="node-1", wanted=(Automatic(family=Family.IPV4),), use=AllowedUse.WORKLOAD)


# --- the node's name -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "netconf,texts,name",
    [
        (NetConf(nodename="a", hostname="b"), {FILE: "filenode\n"}, "a"),
        (NetConf(hostname="named-hostname.somewhere"), {}, "named-hostname.somewhere"),
        (NetConf(), {FILE: "filenode\n"}, "filenode"),
        (NetConf(nodename_file="/other"), {FILE: "filenode", "/other": "other"}, "other"),
        (NetConf(hostname="b"), {FILE: "filenode\n"}, "filenode"),
        (NetConf(hostname="b"), {FILE: " \n"}, "b"),
        (NetConf(), {}, "machine"),
    ],
)
def test_check_32_the_first_source_counts(
    harness: CNINodeHarness, netconf: NetConf, texts: dict[str, str | OSError], name: str
) -> None:
    harness.host.texts = texts
    assert node_of(harness.world, netconf) == name


def test_the_machines_name_is_used_in_lower_case(harness: CNINodeHarness) -> None:
    harness.host.name = " Machine.Example\n"
    assert node_of(harness.world, NetConf()) == "machine.example"


@pytest.mark.parametrize("texts", [{}, {FILE: "\n"}])
def test_the_deprecated_host_name_is_used_with_a_warning(
    harness: CNINodeHarness, texts: dict[str, str | OSError]
) -> None:
    harness.host.texts = texts
    assert node_of(harness.world, NetConf(hostname="b")) == "b"
    assert harness.log.of(Level.WARNING) == ["the key hostname is deprecated; use nodename"]


def test_each_deprecated_key_is_a_warning_that_names_what_to_use(harness: CNINodeHarness) -> None:
    harness.add(etcd_scheme="https", etcd_authority="a:1")
    assert harness.log.of(Level.WARNING) == [
        "the key etcd_authority is deprecated; use etcd_endpoints",
        "the key etcd_scheme is deprecated; use etcd_endpoints",
    ]


@pytest.mark.parametrize("netconf", [NetConf(nodename="a", hostname="b"), NetConf()])
def test_there_is_no_warning_about_what_was_not_used(harness: CNINodeHarness, netconf: NetConf) -> None:
    harness.host.texts = {FILE: "filenode"}
    node_of(harness.world, netconf)
    assert harness.log.lines == []


@pytest.mark.parametrize("machine", ["localhost", "LocalHost\n", "localhost.localdomain", "(none)"])
def test_the_name_of_a_machine_that_has_no_name_of_its_own_is_refused(harness: CNINodeHarness, machine: str) -> None:
    """Two nodes of one name would release each other's addresses by GC."""
    harness.host.name = machine
    with pytest.raises(ConfigurationError) as refusal:
        node_of(harness.world, NetConf())
    name = machine.strip().lower()
    accepted = "many machines have that name; set nodename to the name that this node is registered under"
    assert refusal.value.code == 7
    assert str(refusal.value) == f"the name of the machine: {name!r} is not accepted; {accepted}"
    assert node_of_delete(harness.world, NetConf()) == name


@pytest.mark.parametrize("machine", ["localhost4", "my-localhost", "node.localhost"])
def test_a_name_that_is_only_like_it_is_taken(harness: CNINodeHarness, machine: str) -> None:
    harness.host.name = machine
    assert node_of(harness.world, NetConf()) == node_of_delete(harness.world, NetConf()) == machine


@pytest.mark.parametrize("netconf", [NetConf(nodename="localhost"), NetConf(hostname="localhost"), NetConf()])
def test_a_configured_name_is_taken_whatever_it_is(harness: CNINodeHarness, netconf: NetConf) -> None:
    harness.host.name, harness.host.texts = "localhost", {FILE: "localhost"}
    assert node_of(harness.world, netconf) == node_of_delete(harness.world, netconf) == "localhost"


def test_an_unreadable_file_is_passed_over_with_a_warning(harness: CNINodeHarness) -> None:
    harness.host.texts = {FILE: DENIED}
    assert node_of(harness.world, NetConf()) == "machine"
    ((level, message, fields),) = harness.log.lines
    assert (level, message) == (Level.WARNING, "the node-name file cannot be read")
    assert fields == {"path": FILE, "cause": str(DENIED)}


# --- the node-name file as a gate ----------------------------------------------------------------------------------


def test_the_gate_is_open_unless_it_is_asked_for(harness: CNINodeHarness) -> None:
    require_nodename_file(harness.world, NetConf())
    assert NetConf().nodename_file not in harness.host.texts, "there is no file, and none is asked for"


def test_the_gate_opens_with_the_file(harness: CNINodeHarness) -> None:
    harness.host.texts = {FILE: ""}
    require_nodename_file(harness.world, NetConf(nodename_file_optional=False))
    assert harness.log.of(Level.WARNING) == []


@pytest.mark.parametrize(
    "texts,cause",
    [
        (
            {},
            "no such file or directory: check that the netplug node process is running and has mounted its directory",
        ),
        ({FILE: DENIED}, str(DENIED)),
    ],
)
def test_the_gate_is_closed_without_the_file(
    harness: CNINodeHarness, texts: dict[str, str | OSError], cause: str
) -> None:
    harness.host.texts = texts
    with pytest.raises(Unavailable) as refusal:
        require_nodename_file(harness.world, NetConf(nodename="a", nodename_file_optional=False))
    assert (refusal.value.code, str(refusal.value)) == (11, f"{FILE}: {cause}")


# --- the MTU -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "netconf,text,mtu",
    [
        (NetConf(), None, 0),
        (NetConf(), "3000\n", 3000),
        (NetConf(), " 0 ", 0),
        (NetConf(mtu=1450), None, 1450),
        (NetConf(mtu=1450), "3000", 1450),
        (NetConf(require_mtu_file=True), "65535", 65535),
    ],
)
def test_check_29_the_configured_mtu_goes_before_the_file(
    harness: CNINodeHarness, netconf: NetConf, text: str | None, mtu: int
) -> None:
    harness.host.texts = {} if text is None else {MTU_FILE: text}
    assert mtu_of(harness.world, netconf) == mtu


@pytest.mark.parametrize("text", ["abc", "", "-1", "1450.0", "1450 1450", "²", "65536", "9" * 5000])
@pytest.mark.parametrize("netconf", [NetConf(), NetConf(mtu=1450)])
def test_check_29_a_broken_file_is_an_error_even_with_an_mtu(
    harness: CNINodeHarness, netconf: NetConf, text: str
) -> None:
    harness.host.texts = {MTU_FILE: text}
    with pytest.raises(ConfigurationError) as refusal:
        mtu_of(harness.world, netconf)
    assert str(refusal.value) == (
        f"failed to read MTU file {MTU_FILE}: {text[:40]!r} is not accepted; "
        "one number up to 65535 is expected, such as 1450"
    )


def test_check_29_an_unreadable_file_is_an_error(harness: CNINodeHarness) -> None:
    harness.host.texts = {MTU_FILE: DENIED}
    with pytest.raises(ConfigurationError, match=f"^failed to read MTU file {MTU_FILE}: .*Permission denied.* is not"):
        mtu_of(harness.world, NetConf(mtu=1450))


def test_check_29_the_file_may_be_required(harness: CNINodeHarness) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        mtu_of(harness.world, NetConf(require_mtu_file=True))
    assert str(refusal.value) == (
        f"failed to read MTU file {MTU_FILE}: 'no such file' is not accepted; require_mtu_file is true: it must exist"
    )


# --- families ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ipam,wanted",
    [
        (IPAMConfig(ipv4_pools=("p",)), (Automatic(family=Family.IPV4, pools=("p",)),)),
        (IPAMConfig(assign_ipv4=False, assign_ipv6=True), (Automatic(family=Family.IPV6),)),
        (
            IPAMConfig(assign_ipv6=True, ipv6_pools=("q", "r")),
            (Automatic(family=Family.IPV4), Automatic(family=Family.IPV6, pools=("q", "r"))),
        ),
    ],
)
def test_check_17_one_address_of_each_family_that_is_on(ipam: IPAMConfig, wanted: tuple[Automatic, ...]) -> None:
    assert wanted_of(NetConf(ipam=ipam)) == wanted


def test_a_configuration_without_any_family_wants_nothing() -> None:
    with pytest.raises(NoAddressWanted) as refusal:
        wanted_of(NetConf(ipam=IPAMConfig(assign_ipv4=False)))
    assert refusal.value.code == 110
    assert str(refusal.value) == (
        'the configuration asks for no address: ipam.assign_ipv4 and ipam.assign_ipv6 are both "false"; '
        'set at least one to "true"'
    )


# --- the call ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args,pod,pod_namespace",
    [
        (POD, "test-pod-1", "test"),
        ("", "", ""),
        ("K8S_POD_NAME=p", "", ""),
        ("K8S_POD_NAMESPACE=n;K8S_POD_NAME=", "", ""),
    ],
)
def test_a_pod_is_one_that_is_named_with_its_namespace(
    harness: CNINodeHarness, args: str, pod: str, pod_namespace: str
) -> None:
    request, _netconf = harness.make_call("ADD", ContainerInterface(args=args), Plugin.MAIN)
    assert workload_of(request, "node-1") == WorkloadIdentity(
        node="node-1", network="net1", container_id="c1", interface="eth0", pod=pod, pod_namespace=pod_namespace
    )


@pytest.mark.parametrize(
    "settings,forwarding",
    [
        ({}, Forwarding.DISABLED),
        ({"allow_ip_forwarding": False}, Forwarding.DISABLED),
        ({"allow_ip_forwarding": True}, Forwarding.ENABLED),
    ],
)
def test_a_link_is_what_request_and_configuration_ask_for(
    harness: CNINodeHarness, settings: dict[str, object], forwarding: Forwarding
) -> None:
    harness.host.texts = {MTU_FILE: "1450"}
    request, netconf = harness.make_call(
        "ADD", DEFAULT_CONTAINER, Plugin.MAIN, container_settings=settings, num_queues=3
    )
    call = open_call(request, netconf, node_of(harness.world, netconf))
    assert call.fields == {"container": "c1", "interface": "eth0", "network": "net1", "node": "node-1"}
    assert call.link.mtu == 0
    link = link_of(harness.world, call)
    assert (link.namespace, link.name, link.host_name) == (
        DEFAULT_CONTAINER.netns,
        "eth0",
        call.workload.host_interface,
    )
    assert (link.queues, link.forwarding, link.mtu, link.routes) == (3, forwarding, 1450, None)


# --- names that no node has, and files of other machines --------------------------------------------------------------

NO_NAMES = ["__KUBERNETES_NODE_NAME__", "${HOSTNAME}", " node a ", " node", "..", "a/b", "K\u00c4RNTEN", "a\nb", "a\0b",
            "\ufeffnode-1", "\ufffd\ufffd", "-a", "a" * 254]  # fmt: skip


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize("source", ["nodename", "hostname", FILE])
def test_what_is_no_name_of_a_node_is_refused_wherever_it_stands(
    harness: CNINodeHarness, source: str, name: str
) -> None:
    if source == FILE:
        harness.host.texts[FILE] = f"{name}\n"
    netconf = {"nodename": NetConf(nodename=name), "hostname": NetConf(hostname=name), FILE: NetConf()}[source]
    if source == FILE and name.strip() == "node":
        assert node_of(harness.world, netconf) == "node"
        return
    with pytest.raises(ConfigurationError) as refusal:
        node_of(harness.world, netconf)
    assert (refusal.value.code, refusal.value.where) == (7, source)
    assert "the name of a node is expected: lower-case letters, digits, '-' and '.' (RFC 1123)" in str(refusal.value)
    assert node_of_delete(harness.world, netconf), "the interface has to go"


def test_a_configured_name_in_capitals_is_refused_with_the_one_in_lower_case(harness: CNINodeHarness) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        node_of(harness.world, NetConf(nodename="Node-7"))
    assert "names of nodes are in lower case: 'node-7' is expected" in str(refusal.value)
    harness.host.name = "Under_score"
    with pytest.raises(ConfigurationError, match="the name of the machine"):
        node_of(harness.world, NetConf())


BOOT, MACHINE, PRODUCT = (
    "/proc/sys/kernel/random/boot_id", "/etc/machine-id", "/sys/class/dmi/id/product_uuid",
)  # fmt: skip


def start_machine(harness: CNINodeHarness, boot: str, machine: str, product: str) -> None:
    found = {BOOT: boot, MACHINE: machine, PRODUCT: product}
    for path, text in found.items():
        harness.host.texts.pop(path, None)
        if text:
            harness.host.texts[path] = f"{text}\n"


@pytest.mark.parametrize(
    "boot, machine, product, counts",
    [
        ("b1", "m1", "p1", True),
        ("b1", "other", "other", True),  # a container of the same machine
        ("b2", "m1", "p1", True),  # started again
        ("b2", "m1", "p2", False),  # a copied disk
        ("b2", "m2", "p1", False),
        ("b2", "m1", "", False),
        ("", "", "", True),  # nothing is known
    ],
)
def test_a_node_name_file_counts_on_the_machine_that_wrote_it(
    harness: CNINodeHarness, boot: str, machine: str, product: str, *, counts: bool
) -> None:
    start_machine(harness, "b1", "m1", "p1")
    harness.host.texts[FILE] = "node-1"
    harness.host.texts[machine_file(NetConf())] = machine_identity(harness.host)
    start_machine(harness, boot, machine, product)
    required = NetConf(nodename_file_optional=False)
    if counts:
        assert node_of(harness.world, NetConf()) == node_of_delete(harness.world, NetConf()) == "node-1"
        require_nodename_file(harness.world, required)
        return
    for judge in (node_of, require_nodename_file):
        with pytest.raises(Unavailable) as refusal:
            judge(harness.world, required)
        assert (refusal.value.code, refusal.value.what) == (11, FILE)
    assert node_of_delete(harness.world, NetConf()) == "machine"
    assert node_of(harness.world, NetConf(nodename="own")) == "own"


def test_a_node_name_file_by_itself_counts_and_unreadable_files_identify_no_machine(
    harness: CNINodeHarness,
) -> None:
    start_machine(harness, "b1", "m1", "p1")
    harness.host.texts[FILE] = "node-1"
    assert node_of(harness.world, NetConf()) == "node-1"
    harness.host.texts[PRODUCT] = PermissionError(13, "Permission denied")
    assert machine_identity(harness.host) == "boot-id=b1\nmachine-id=m1\n"


# --- addresses under the host's lock -------------------------------------------------------------------------------


def test_an_assignment_takes_the_hosts_lock_and_a_release_does_not(harness: CNINodeHarness) -> None:
    given = assign(harness.world, REQUEST, NO_ENDPOINT)
    assert harness.host.locks.taken == [(LOCK_FILE, 0)]
    freed = release(harness.world, ReleaseRequest(handle="h"), NO_ENDPOINT)
    assert [one.address for one in given.addresses] == list(freed.addresses)
    assert (harness.host.locks.taken, harness.host.locks.held) == ([(LOCK_FILE, 0)], frozenset())


def test_trap_5_waiting_for_the_lock_costs_no_time_of_the_assignment(harness: CNINodeHarness) -> None:
    harness.host.locks.try_lock(LOCK_FILE, 0)
    attempts = 12
    faulty = FaultyDatastore(harness.memory, dict.fromkeys(range(1, attempts), LostRace()))
    harness.store = HookedStore(faulty, before_commit=lambda: harness.clock.sleep((ASSIGN_S - 2) / attempts))
    assert assign(harness.world, REQUEST, NO_ENDPOINT).addresses
    assert harness.clock.monotonic() > ASSIGN_S


def test_the_lock_is_free_after_a_failure(harness: CNINodeHarness) -> None:
    harness.set_ready()
    with pytest.raises(Unavailable):
        assign(harness.world, REQUEST, NO_ENDPOINT)
    assert harness.host.locks.held == frozenset()


@pytest.mark.parametrize(
    "fault, is_held_after",
    [(LostRace(), True), (LostReply(0), False), (LostReply(), False)],
    ids=["another was faster", "request lost", "reply lost"],
)
def test_the_lock_is_held_until_the_store_does_not_answer(
    harness: CNINodeHarness, fault: LostRace | LostReply, *, is_held_after: bool
) -> None:
    """A conflict keeps it, because the store answers; a commit without an answer may be followed by others."""
    faulty = FaultyDatastore(harness.memory, {1: fault})
    held = list[tuple[int, bool]]()

    def note() -> None:
        held.append((faulty.commits, bool(harness.host.locks.held)))

    harness.store = HookedStore(faulty, before_read=note, before_commit=note)
    assert assign(harness.world, REQUEST, NO_ENDPOINT).addresses
    assert {is_held for commits, is_held in held if commits == 0} == {True}
    assert {is_held for commits, is_held in held if commits > 0} == {is_held_after}


def test_what_a_failed_assignment_left_is_released_without_the_lock(harness: CNINodeHarness) -> None:
    """Others do not wait while a store that does not answer is asked to take back what may be written."""
    held = list[bool]()

    def interrupt_first() -> None:
        held.append(bool(harness.host.locks.held))
        if len(held) == 1:
            raise KeyboardInterrupt

    harness.store = HookedStore(harness.memory, after_commit=interrupt_first)
    with pytest.raises(KeyboardInterrupt):
        assign(harness.world, REQUEST, NO_ENDPOINT)
    assert held == [True, False]
    harness.assert_nothing_left()


def test_giving_back_hides_no_error_and_says_its_own(harness: CNINodeHarness) -> None:
    assign(harness.world, REQUEST, NO_ENDPOINT)
    harness.store = FaultyDatastore(harness.memory, {1: LostRequest()})
    release_after_failure(harness.world, ReleaseRequest(handle="h"), NO_ENDPOINT)
    ((level, message, fields),) = harness.log.lines
    assert (level, message) == (Level.WARNING, "addresses could not be given back")
    assert fields == {"handle": "h", "cause": "the scripted datastore: the request was lost"}
    assert harness.handles() == ["h"]


def test_giving_back_frees(harness: CNINodeHarness) -> None:
    assign(harness.world, REQUEST, NO_ENDPOINT)
    release_after_failure(harness.world, ReleaseRequest(handle="h"), NO_ENDPOINT)
    assert harness.log.lines == []
    harness.assert_nothing_left()
