"""Hypothesis strategies for addresses, names, labels, selectors, resources and the records of the allocator.

Both families are mixed. Resources are valid; blocks are in states that assignments and releases lead to. All property
tests draw from here, so that a corner case that one test needed is tried by all.
"""

from __future__ import annotations

from attrs import evolve, fields
from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import require_type
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, LinkLayer, Shortfall, Specific, Wanted
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, Pairs
from netplug_core.names import endpoint_labels
from netplug_core.orchestrator.networkpolicy import (
    IPBlock,
    KubernetesNetworkPolicy,
    KubernetesNetworkPolicySpec,
    LabelOperator,
    LabelRequirement,
    LabelSelector,
    PeerEntry,
    PortEntry,
    RuleEntry,
)
from netplug_core.policy.model import ConnectionState, Packet
from netplug_core.policy.resolve import PolicyObject
from netplug_core.records import Revision
from netplug_core.resources.fields import Labels, Metadata, PortRange
from netplug_core.resources.hostendpoint import HostEndpoint, HostEndpointSpec, PortProtocol
from netplug_core.resources.hostendpoint import NamedPort as HostPort
from netplug_core.resources.ippool import (
    AllowedUse,
    AssignmentMode,
    IPAMConfigurationSpec,
    IPPool,
    IPPoolSpec,
    IPReservation,
    IPReservationSpec,
)
from netplug_core.resources.networkpolicy import (
    Direction,
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    GlobalNetworkSet,
    NetworkPolicy,
    NetworkPolicySpec,
    NetworkSet,
    NetworkSetSpec,
)
from netplug_core.resources.nodeconfiguration import (
    EndpointToHostAction,
    FailsafePort,
    NodeConfiguration,
    NodeConfigurationSpec,
    SourceSpoofing,
)
from netplug_core.resources.policyrule import (
    EntityRule,
    ICMPMatch,
    PolicyRule,
    PortName,
    Protocol,
    RuleAction,
    ServiceAccountMatch,
)
from netplug_core.resources.profile import Profile, ProfileSpec, pod_profiles
from netplug_core.resources.workloadendpoint import EndpointPort, WorkloadEndpoint, WorkloadEndpointSpec

__all__ = [
    "addresses", "affinities", "attributes", "blocks", "configurations", "families", "handles", "host_endpoints",
    "kubernetes_policies", "label_sets", "labels", "names", "network_policies", "network_sets", "node_configurations",
    "owners", "packets", "policy_endpoints", "policy_objects", "policy_rules", "pools", "prefixes", "profiles",
    "requests", "reservations", "revisions", "selectors",
]  # fmt: skip

# Few of each, so that selectors and label sets drawn apart meet often; keywords and both quotes are among them.
_LABELS = ("a", "b", "in", "has", "all", "not", "contains", "zone.example/rack-1", "9_x")
_VALUES = ("", "a", "ab", "b", "zone", "all()", "&& (", "it's", '"', "é\n")
_OPERATORS = (
    "==", " == ", "!=", "\t!= ", " contains ", " starts with", "\tstartswith", " starts\t with ", " ends with",
    " endswith",
)  # fmt: skip
_SET_OPERATORS = (" in", " in ", " not in ", " notin", "\tnot  in\t")

_SECOND_NS = 1_000_000_000
_SELECTOR_LENGTH = 1024
_NOT_FOR_POOLS = tuple(
    Prefix.parse(text)
    for text in (
        *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4"),
        *("::/128", "::1/128", "fe80::/10", "ff00::/8"),
    )
)
# All of Unicode would make Hypothesis build a table of it, which takes seconds and fails its health check.
_LITERAL_CHARACTERS = "".join(map(chr, range(128))) + "\x85\xa0éßİ\u0301\u2028中\ufeff\uffff😀\U0010ffff"
_LABEL_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def families() -> st.SearchStrategy[Family]:
    """IPv4 or IPv6."""
    return st.sampled_from(Family)


def addresses(family: Family | None = None) -> st.SearchStrategy[Address]:
    """Any address, of one family or of both; no IPv4-mapped IPv6 address."""
    require_type("family", family, Family | None, "Family.IPV4, Family.IPV6 or None is expected")
    chosen = families() if family is None else st.just(family)
    return chosen.flatmap(_addresses_of)


@st.composite
def prefixes(draw: st.DrawFn, *, family: Family | None = None, shortest: int = 0, longest: int | None = None) -> Prefix:
    """Any prefix without host bits; ``shortest`` and ``longest`` bound its length."""
    address = draw(addresses(family))
    width = address.family.width
    return Prefix.at(address, draw(st.integers(shortest, width if longest is None else min(longest, width))))


def names(*, longest: int = 63) -> st.SearchStrategy[str]:
    """Names of resources: lower-case letters and digits, with dashes and dots between them (RFC 1123)."""
    part = st.text(alphabet=_LABEL_CHARACTERS + "-", min_size=1, max_size=min(longest, 63)).filter(
        _has_alphanumeric_edges
    )
    dotted = st.lists(part, min_size=1, max_size=3).map(".".join)
    return dotted.filter(lambda name: len(name) <= longest)


def labels() -> st.SearchStrategy[Labels]:
    """A few labels, sorted by key; keys with and without a domain, some values empty."""
    keys = st.one_of(names(longest=20), st.builds("{}/{}".format, names(longest=20), names(longest=20)))
    values = st.one_of(st.just(""), names(longest=20))
    return st.dictionaries(keys, values, max_size=4).map(lambda pairs: tuple(sorted(pairs.items())))


def label_sets() -> st.SearchStrategy[dict[str, str]]:
    """Labels of an object, with the keys and values that ``selectors`` uses."""
    return st.dictionaries(st.sampled_from(_LABELS), st.sampled_from(_VALUES), max_size=5)


def selectors() -> st.SearchStrategy[str]:
    """Texts of selectors in every spelling: with and without blanks and parentheses, negated more than once."""
    return st.one_of(st.sampled_from(["", " \t"]), st.recursive(_selector_terms(), _joined_selectors, max_leaves=8))


def revisions() -> st.SearchStrategy[Revision]:
    """Revisions as stores make them: a number, or a uid and a number."""
    return st.one_of(
        st.integers(1, 2**63 - 1).map(str),
        st.builds("{}/{}".format, st.uuids(), st.integers(1, 2**63 - 1)),
    ).map(Revision)


# --- resources --------------------------------------------------------------------------------------------------------


@st.composite
def pools(draw: st.DrawFn) -> IPPool:
    """Pools of any size, use and selection, without encapsulation."""
    family = draw(families())
    shortest, longest = family.block_lengths
    length = draw(st.integers(shortest, longest))
    prefix = draw(prefixes(family=family, shortest=8, longest=length).filter(_is_for_pools))
    uses = draw(
        st.sampled_from([(AllowedUse.WORKLOAD,), (AllowedUse.TUNNEL,), (AllowedUse.WORKLOAD, AllowedUse.TUNNEL)])
    )
    spec = IPPoolSpec(
        prefix=prefix,
        block_length=length,
        is_disabled=draw(st.booleans()),
        allowed_uses=uses,
        node_selector=draw(st.just("all()") | _pool_selectors()),
        namespace_selector="" if AllowedUse.TUNNEL in uses else draw(st.just("") | _pool_selectors()),
        assignment_mode=draw(st.sampled_from(AssignmentMode)),
    )
    return IPPool(metadata=Metadata(name=draw(names()), labels=draw(labels())), spec=spec)


def reservations() -> st.SearchStrategy[IPReservation]:
    """Up to four reserved prefixes, also single addresses, which may overlap."""
    spec = st.builds(IPReservationSpec, reserved=st.lists(prefixes(shortest=8), max_size=4).map(tuple))
    return st.builds(IPReservation, metadata=st.builds(Metadata, name=names()), spec=spec)


def configurations() -> st.SearchStrategy[IPAMConfigurationSpec]:
    """Every combination of settings that may be stored."""
    loose = st.builds(IPAMConfigurationSpec, cooldown_s=st.integers(0, 3600))
    strict = st.builds(
        IPAMConfigurationSpec,
        is_affinity_strict=st.just(value=True),
        may_auto_allocate_blocks=st.booleans(),
        max_blocks_per_host=st.integers(0, 40),
        cooldown_s=st.integers(0, 3600),
    )
    return loose | strict


# --- records of the allocator -----------------------------------------------------------------------------------------


def owners() -> st.SearchStrategy[str]:
    """The owner of a block as blocks name it: a node, another owner, or an empty text."""
    return st.one_of(names().map("host:{}".format), names().map("virtual:{}".format), st.just(""))


def attributes() -> st.SearchStrategy[Attribute]:
    """The attribute of an allocated address; never the one of an address in cooldown."""
    return st.builds(
        Attribute,
        handle=st.none() | names(longest=20),
        owner=_owner_attributes(),
        alternate=st.just(()) | _owner_attributes(),
    )


@st.composite
def blocks(draw: st.DrawFn, *, family: Family | None = None, max_size_bits: int = 4) -> Block:
    """A block of up to 2 ** ``max_size_bits`` addresses after assignments, releases, cooldowns and changes of owner."""
    prefix = draw(prefixes(family=family))
    size = draw(st.integers(0, max_size_bits))
    prefix = Prefix.at(prefix.first, prefix.family.width - size)
    kept_back = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (1, 1)])) if size > 1 else (0, 0)
    now_ns = draw(st.integers(0, 2**33)) * _SECOND_NS  # to the year 2242
    block = Block.new(prefix, owner=draw(owners()), now_ns=now_ns, host_reserved=kept_back)
    for _ in range(draw(st.integers(0, 8))):
        now_ns += draw(st.integers(0, 10)) * _SECOND_NS
        block = draw(_changed_block(block, now_ns))
    return block


@st.composite
def _changed_block(draw: st.DrawFn, block: Block, now_ns: int) -> Block:
    """The block after one more write."""
    held = [allocation.ordinal for allocation in block.held() if not allocation.is_cooling]
    match draw(st.sampled_from(["assign", "assign", "release", "cool", "collect", "claim", "relinquish", "touch"])):
        case "assign" if block.free:
            ordinals = block.find_free(draw(st.integers(1, len(block.free))), None)
            return block.assign(ordinals, draw(attributes()))
        case "release" | "cool" as how if held:
            going = draw(st.frozensets(st.sampled_from(held), min_size=1))
            return block.release(going, cooling_from_ns=now_ns if how == "cool" else None)
        case "collect":
            return block.expire_cooldown(now_ns, draw(st.integers(0, 10)) * _SECOND_NS)
        case "claim":
            return block.claimed(draw(owners().filter(bool)), now_ns)
        case "relinquish":
            return block.relinquished()
        case _:
            return block.touched()


def affinities() -> st.SearchStrategy[Affinity]:
    """An affinity in any of its states."""
    return st.builds(Affinity, state=st.sampled_from(AffinityState))


def handles() -> st.SearchStrategy[Handle]:
    """A handle with up to four blocks of both families, each with a count above zero."""
    counted = st.dictionaries(prefixes(shortest=20), st.integers(1, 2**40), max_size=4)
    return counted.map(lambda counts: Handle(blocks=tuple(sorted(counts.items()))))


@st.composite
def requests(draw: st.DrawFn) -> AssignRequest:
    """Any request: automatic, specific or nothing for each family."""
    wanted: list[Wanted] = []
    for family in draw(st.lists(families(), min_size=1, max_size=2, unique=True)):
        named = tuple(draw(st.lists(names(), max_size=2)))
        if draw(st.booleans()):
            wanted.append(Automatic(family=family, count=draw(st.integers(1, 300)), pools=named))
        else:
            wanted.append(Specific(address=draw(addresses(family)), pools=named))
    plain = AssignRequest(
        handle=draw(st.none() | names()), node=draw(names()), wanted=tuple(wanted), owner=draw(_owner_attributes())
    )
    return evolve(
        plain,
        use=draw(st.none() | st.sampled_from(AllowedUse)),
        link_layer=draw(st.sampled_from(LinkLayer)),
        shortfall=draw(st.sampled_from(Shortfall)),
        namespace_labels=draw(labels()),
        block_limit=draw(st.none() | st.integers(1, 30)),
        max_per_handle=draw(st.none() | st.integers(1, 5)),
        host_reserved=draw(st.sampled_from([(0, 0), (1, 0), (4, 1)])),
        affine_to=draw(st.sampled_from(["", "virtual:load-balancer"])),
    )


# --- policies ---------------------------------------------------------------------------------------------------------

# Few names, labels and addresses, so that policies select endpoints and packets meet rules often.
_NAMESPACES = ("x", "y")
_NODES = ("here", "there")
_PROFILES = ("kns.x", "kns.y", "ksa.x.web", "open")
_POLICY_LABELS = (("app", "a"), ("app", "b"), ("role", "a"), ("role", ""))
_POLICY_SELECTORS = (
    "", "all()", "app == 'a'", "app == 'b'", "has(role)", "!has(role)", "app in {'a', 'b'} && role == 'a'",
    "app != 'a'",
    "app == 'a' || role == ''", "pcns.team == 'red'", "app starts with 'a' && !has(role)", "team == 'red'",
    "projectnetplug.org/namespace == 'y'",
)  # fmt: skip
_POLICY_ADDRESSES = tuple(map(Address.parse, ("10.0.0.1", "10.0.0.2", "10.0.1.1", "192.0.2.9", "fd00::1", "fd00::2")))
_POLICY_PREFIXES = tuple(
    map(Prefix.parse, ("10.0.0.0/24", "10.0.0.0/23", "10.0.0.1/32", "0.0.0.0/0", "192.0.2.8/29", "fd00::/64", "::/0"))
)
_PORT_NAMES = ("http", "dns")
_PORT_PROTOCOLS = (PortProtocol.TCP, PortProtocol.UDP)
_NUMBERS = (53, 80, 81, 8080)


def policy_objects() -> st.SearchStrategy[PolicyObject]:
    """Any object that the policies of a node depend on; the nodes are called ``here`` and ``there``."""
    return st.one_of(
        *(policy_endpoints(), policy_endpoints(), host_endpoints(), network_sets(), profiles()),
        *(network_policies(), network_policies(), kubernetes_policies(), kubernetes_policies(), node_configurations()),
    )


@st.composite
def policy_endpoints(draw: st.DrawFn) -> WorkloadEndpoint:
    """The endpoint of a pod. Names, interfaces and addresses are few, so that endpoints move and share them."""
    namespace, name = draw(st.sampled_from(_NAMESPACES)), draw(st.sampled_from(("p1", "p2", "p3")))
    account = draw(st.sampled_from(("", "web")))
    ports = st.builds(
        EndpointPort,
        protocol=st.sampled_from([each.value for each in _PORT_PROTOCOLS]),
        port=st.sampled_from(_NUMBERS),
        name=st.sampled_from(("", *_PORT_NAMES)),
    )
    labels_of_pod = draw(st.lists(st.sampled_from(_POLICY_LABELS), max_size=2, unique_by=lambda pair: pair[0]))
    return WorkloadEndpoint(
        metadata=Metadata(
            name=name,
            namespace=namespace,
            labels=endpoint_labels(
                namespace=namespace, orchestrator="k8s", service_account=account, workload=tuple(labels_of_pod)
            ),
        ),
        spec=WorkloadEndpointSpec(
            orchestrator="k8s",
            node=draw(st.sampled_from((*_NODES, "here"))),
            endpoint="eth0",
            container_id=draw(st.sampled_from(("c1", "c2"))),
            addresses=tuple(draw(st.lists(st.sampled_from(_POLICY_ADDRESSES), max_size=2))),
            profiles=draw(st.just(pod_profiles(namespace, account)) | st.sampled_from([(), ("open",), ("gone",)])),
            interface_name=draw(st.sampled_from(("netp1", "netp2", "netp3", ""))),
            ports=tuple(draw(st.lists(ports, max_size=2))),
            allowed_source_prefixes=draw(st.sampled_from([(), ("10.7.0.0/24", "10.7.0.0/16"), ("none",)])),
        ),
    )


def host_endpoints() -> st.SearchStrategy[HostEndpoint]:
    """An endpoint of a host interface, or of all of them."""
    ports = st.builds(
        HostPort,
        name=st.sampled_from(_PORT_NAMES),
        protocol=st.sampled_from(_PORT_PROTOCOLS),
        port=st.sampled_from(_NUMBERS),
    )
    spec = st.builds(
        HostEndpointSpec,
        node=st.sampled_from(_NODES),
        interface_name=st.sampled_from(("*", "eth0", "")),
        expected_ips=st.lists(st.sampled_from(_POLICY_ADDRESSES), max_size=2).map(tuple),
        profiles=st.sampled_from([(), ("open",), ("projectnetplug-default-allow",)]),
        ports=st.lists(ports, max_size=1).map(tuple),
    )
    metadata = st.builds(Metadata, name=st.sampled_from(("h1", "h2", "h3")), labels=_policy_labels())
    return st.builds(HostEndpoint, metadata=metadata, spec=spec)


def network_sets() -> st.SearchStrategy[NetworkSet | GlobalNetworkSet]:
    """A set of prefixes, of a namespace or of none."""
    spec = st.builds(NetworkSetSpec, nets=st.lists(st.sampled_from(_POLICY_PREFIXES), max_size=3).map(tuple))
    namespaced = st.builds(
        Metadata,
        name=st.sampled_from(("n1", "n2")),
        namespace=st.sampled_from(_NAMESPACES),
        labels=_policy_labels(),
    )
    return st.one_of(
        st.builds(NetworkSet, metadata=namespaced, spec=spec),
        st.builds(
            GlobalNetworkSet,
            metadata=st.builds(Metadata, name=st.sampled_from(("n1", "n2")), labels=_policy_labels()),
            spec=spec,
        ),
    )


def profiles() -> st.SearchStrategy[Profile]:
    """The profile of a namespace, of a service account, or one of a user."""
    applied = st.sampled_from([(), (("pcns.team", "red"),), (("pcns.team", "blue"), ("role", "a"))])
    spec = st.builds(
        ProfileSpec,
        labels_to_apply=applied,
        ingress=st.lists(policy_rules(), max_size=2).map(tuple),
        egress=st.lists(policy_rules(), max_size=2).map(tuple),
    )
    return st.builds(Profile, metadata=st.builds(Metadata, name=st.sampled_from(_PROFILES)), spec=spec)


@st.composite
def network_policies(draw: st.DrawFn) -> NetworkPolicy | GlobalNetworkPolicy:
    """A policy of netplug, of a namespace or of none."""
    rules = st.lists(policy_rules(), max_size=2).map(tuple)
    common = NetworkPolicySpec(
        order=draw(st.sampled_from((None, 10.0, 1000.0))),
        selector=draw(st.sampled_from(_POLICY_SELECTORS)),
        service_account_selector=draw(st.sampled_from(("", "", "all()"))),
        types=draw(st.sampled_from([(), (Direction.INGRESS,), (Direction.EGRESS,), tuple(Direction)])),
        ingress=draw(rules),
        egress=draw(rules),
    )
    name = draw(st.sampled_from(("a", "b")))
    if draw(st.booleans()):
        namespace = draw(st.sampled_from(_NAMESPACES))
        return NetworkPolicy(metadata=Metadata(name=name, namespace=namespace), spec=common)
    shared = {each.name: getattr(common, each.name) for each in fields(NetworkPolicySpec)}
    spec = GlobalNetworkPolicySpec(**shared, namespace_selector=draw(st.sampled_from(("", "all()", "team == 'red'"))))
    return GlobalNetworkPolicy(metadata=Metadata(name=name), spec=spec)


@st.composite
def policy_rules(draw: st.DrawFn) -> PolicyRule:
    """A rule of any action; some ask for what no packet has."""
    return PolicyRule(
        action=draw(st.sampled_from((RuleAction.ALLOW, RuleAction.DENY, RuleAction.LOG))),
        family=draw(st.none() | families()),
        protocol=draw(st.sampled_from([None, None, *map(Protocol, (6, 6, 17, 1, 58))])),
        not_protocol=draw(st.sampled_from([None, None, Protocol(6)])),
        icmp=draw(st.none() | st.just(ICMPMatch(type=8))),
        not_icmp=draw(st.none() | st.sampled_from([ICMPMatch(type=8, code=0), ICMPMatch()])),
        source=draw(_entity_rules()),
        destination=draw(_entity_rules()),
    )


def _entity_rules() -> st.SearchStrategy[EntityRule]:
    ports = st.lists(st.sampled_from([PortRange(80, 81), PortRange(53, 53), *map(PortName, _PORT_NAMES)]), max_size=2)
    nets = st.lists(st.sampled_from(_POLICY_PREFIXES), max_size=2).map(tuple)
    accounts = st.sampled_from(
        [None, ServiceAccountMatch(names=("web",)), ServiceAccountMatch(selector="all()"), ServiceAccountMatch()]
    )
    full = st.builds(
        EntityRule,
        nets=nets,
        not_nets=nets,
        selector=st.sampled_from(_POLICY_SELECTORS),
        not_selector=st.sampled_from(_POLICY_SELECTORS),
        namespace_selector=st.sampled_from(("", "", "all()", "global()", "team == 'red'")),
        service_accounts=accounts,
        ports=ports.map(tuple),
        not_ports=ports.map(tuple),
    )
    selected = st.builds(EntityRule, selector=st.sampled_from(_POLICY_SELECTORS), ports=ports.map(tuple))
    return st.one_of(st.just(EntityRule()), selected, full)


@st.composite
def kubernetes_policies(draw: st.DrawFn) -> KubernetesNetworkPolicy:
    """A NetworkPolicy of Kubernetes, also with entries that cannot be read."""
    entries = st.lists(
        st.builds(
            RuleEntry,
            sources=st.lists(_peer_entries(), max_size=2).map(tuple),
            destinations=st.lists(_peer_entries(), max_size=2).map(tuple),
            ports=st.lists(_port_entries(), max_size=3).map(tuple),
            unknown_json=st.sampled_from(("", "", "", '{"newer":1}')),
        ),
        max_size=2,
    ).map(tuple)
    return KubernetesNetworkPolicy(
        namespace=draw(st.sampled_from(_NAMESPACES)),
        name=draw(st.sampled_from(("k1", "k2"))),
        spec=KubernetesNetworkPolicySpec(
            pods=draw(_label_selectors()),
            types=draw(st.sampled_from([(), (Direction.INGRESS,), (Direction.EGRESS,), tuple(Direction)])),
            ingress=draw(entries),
            egress=draw(entries),
        ),
    )


def _peer_entries() -> st.SearchStrategy[PeerEntry]:
    excepted = st.lists(st.sampled_from(_POLICY_PREFIXES), max_size=2).map(tuple)
    block = st.builds(IPBlock, prefix=st.none() | st.sampled_from(_POLICY_PREFIXES), excepted=excepted)
    return st.one_of(
        st.builds(PeerEntry, pod_selector=_label_selectors()),
        st.builds(PeerEntry, namespace_selector=_label_selectors((("team", "red"), ("team", "blue")))),
        st.builds(PeerEntry, pod_selector=_label_selectors(), namespace_selector=_label_selectors((("team", "red"),))),
        st.builds(PeerEntry, ip_block=block),
        st.just(PeerEntry()),
    )


def _label_selectors(pairs: tuple[tuple[str, str], ...] = _POLICY_LABELS) -> st.SearchStrategy[LabelSelector]:
    requirements = st.builds(
        LabelRequirement,
        key=st.sampled_from([label for label, _ in pairs]),
        operator=st.sampled_from(LabelOperator),
        values=st.sampled_from([(), ("a",), ("a", "b"), ("red",)]),
    )
    return st.builds(
        LabelSelector,
        labels=st.lists(st.sampled_from(pairs), max_size=1).map(tuple),
        requirements=st.lists(requirements, max_size=1).map(tuple),
    )


def _port_entries() -> st.SearchStrategy[PortEntry]:
    return st.builds(
        PortEntry,
        protocol=st.sampled_from((*_PORT_PROTOCOLS, PortProtocol.SCTP)),
        port=st.none() | st.sampled_from([PortRange(80, 80), PortRange(8080, 8080), *map(PortName, _PORT_NAMES)]),
        end=st.sampled_from((None, None, None, 81, 9000)),
    )


def node_configurations() -> st.SearchStrategy[NodeConfiguration]:
    """The configuration of all nodes, of the node ``here``, or of another."""
    spec = st.builds(
        NodeConfigurationSpec,
        endpoint_to_host_action=st.sampled_from((None, *EndpointToHostAction)),
        failsafe_inbound=st.none() | st.just(()) | st.just((FailsafePort(protocol=PortProtocol.TCP, port=22),)),
        vxlan_port=st.sampled_from((None, 8472)),
        source_spoofing=st.sampled_from((None, *SourceSpoofing)),
        allows_vxlan=st.none() | st.booleans(),
        is_invalid_evaluated=st.none() | st.booleans(),
    )
    metadata = st.builds(Metadata, name=st.sampled_from(("default", "node.here", "node.there")))
    return st.builds(NodeConfiguration, metadata=metadata, spec=spec)


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    """A packet between the addresses of ``policy_objects``, over their interfaces, of one family."""
    source = draw(st.sampled_from(_POLICY_ADDRESSES))
    same = [each for each in _POLICY_ADDRESSES if each.family is source.family]
    interfaces = st.sampled_from(("netp1", "netp2", "netp3", "eth0", "eth1", ""))
    return Packet(
        source=source,
        destination=draw(st.sampled_from(same)),
        protocol=draw(st.sampled_from((6, 6, 17, 132, 1, 58, 47, 4))),
        source_port=draw(st.sampled_from(_NUMBERS)),
        destination_port=draw(st.sampled_from((*_NUMBERS, 22, 4789))),
        icmp_type=draw(st.sampled_from((8, 0, 3))),
        input_interface=draw(interfaces),
        output_interface=draw(interfaces),
        connection=draw(st.sampled_from((ConnectionState.NEW, ConnectionState.NEW, *ConnectionState))),
    )


def _policy_labels() -> st.SearchStrategy[Labels]:
    chosen = st.lists(st.sampled_from(_POLICY_LABELS), max_size=2, unique_by=lambda pair: pair[0])
    return chosen.map(lambda pairs: tuple(sorted(pairs)))


# --- parts ------------------------------------------------------------------------------------------------------------


def _owner_attributes() -> st.SearchStrategy[Pairs]:
    keys = st.sampled_from(["node", "pod", "namespace", "container", "interface", "network", "type", "service"])
    return st.dictionaries(keys, names(longest=20), max_size=4).map(lambda pairs: tuple(sorted(pairs.items())))


def _pool_selectors() -> st.SearchStrategy[str]:
    return selectors().filter(lambda text: "global" not in text and len(text) <= _SELECTOR_LENGTH)


def _is_for_pools(prefix: Prefix) -> bool:
    return not any(reserved.overlaps(prefix) for reserved in _NOT_FOR_POOLS)


def _addresses_of(family: Family) -> st.SearchStrategy[Address]:
    last = (1 << family.width) - 1
    # Arithmetic goes wrong at the ends of the family, so they are drawn more often.
    values = st.one_of(st.integers(0, last), st.integers(0, 300), st.integers(last - 300, last))
    drawn = values.map(lambda value: Address(family, value))
    return drawn.filter(lambda address: Address.parse(str(address)) == address)


def _has_alphanumeric_edges(text: str) -> bool:
    return not text.startswith("-") and not text.endswith("-")


def _selector_terms() -> st.SearchStrategy[str]:
    label, gap = st.sampled_from(_LABELS), _whitespace()
    literal = st.one_of(st.sampled_from(_VALUES), st.text(_LITERAL_CHARACTERS, max_size=4)).flatmap(_quoted)
    listed = st.builds(_set_of, st.lists(literal, max_size=3), gap, st.sampled_from(["", ","]))
    return st.one_of(
        st.builds("{}({})".format, st.sampled_from(["all", "global ", " all"]), gap),
        st.builds("has{}({}{}{})".format, gap, gap, label, gap),
        st.builds("{}{}{}{}".format, label, st.sampled_from(_OPERATORS), gap, literal),
        st.builds("{}{}{}".format, label, st.sampled_from(_SET_OPERATORS), listed),
    )


def _joined_selectors(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    gap = _whitespace()
    return st.one_of(
        st.builds("{}({}{})".format, gap, inner, gap),
        st.builds("!{}{}".format, gap, inner),
        st.builds("{}{}&&{}{}".format, inner, gap, gap, inner),
        st.builds("{}{}||{}{}".format, inner, gap, gap, inner),
    )


def _set_of(literals: list[str], gap: str, last: str) -> str:
    return f"{{{gap}{f'{gap},{gap}'.join(literals)}{gap}{last if literals else ''}{gap}}}"


def _whitespace() -> st.SearchStrategy[str]:
    return st.sampled_from(["", " ", "\t", "  "])


def _quoted(literal: str) -> st.SearchStrategy[str]:
    able = [quote for quote in "\"'" if quote not in literal]
    return st.sampled_from([f"{quote}{literal}{quote}" for quote in able]) if able else st.just("''")
