"""What a user may ask for: alone, beside others, in place of what there was, and what is only kept."""

from collections.abc import Mapping

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.resources.clusterinformation import ClusterInformation
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    AllowedUse,
    AssignmentMode,
    Encapsulation,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPPool,
    IPPoolSpec,
    IPReservation,
    IPReservationSpec,
)
from netplug_core.resources.kinds import Resource
from netplug_core.resources.kubecontrollersconfiguration import (
    Controllers,
    HostEndpointSettings,
    HostEndpointTemplate,
    KubeControllersConfiguration,
    KubeControllersSpec,
    LoadBalancerController,
    NodeController,
)
from netplug_core.resources.networkpolicy import GlobalNetworkPolicy, NetworkPolicy, NetworkPolicySpec
from netplug_core.resources.node import Node, NodeSpec, OrchestratorReference
from netplug_core.resources.policyrule import ICMPMatch, PolicyRule, RuleAction
from netplug_core.resources.profile import Profile, ProfileSpec
from netplug_core.resources.validation import (
    InvalidResource,
    resource_warnings,
    validate_pool_overlaps,
    validate_pool_update,
    validate_resource,
)
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec

Json = Mapping[str, object]

LOAD_BALANCER = (AllowedUse.LOAD_BALANCER,)


def pool(cidr: str = "10.0.0.0/16", name: str = "p", **spec: object) -> IPPool:
    prefix = Prefix.parse(cidr)
    usual = IPPoolSpec(prefix=prefix, block_length=prefix.family.default_block_length)
    return IPPool(metadata=Metadata(name=name), spec=evolve(usual, **spec))  # type: ignore[arg-type] # any field of it


@pytest.mark.parametrize(
    "good",
    [
        pool(),
        pool("fd00::/48"),
        pool("10.0.0.0/26"),
        pool("10.0.0.0/27", is_disabled=True),
        pool("10.0.0.0/32", block_length=32),
        pool("fd00::1/128", block_length=128),
        pool(namespace_selector="a == 'b'", allowed_uses=(AllowedUse.WORKLOAD,)),
        pool(allowed_uses=LOAD_BALANCER),
        pool(name="a.b-c.9"),
        pool(name="a" * 253),
        pool(node_selector="k == '" + "x" * 1017 + "'"),
        pool(node_selector="k == 'global()' || !has(global)"),
        pool(node_selector=" \t"),
        pool(vxlan_mode=Encapsulation.ALWAYS),
        pool("fd00::/48", vxlan_mode=Encapsulation.CROSS_SUBNET),
    ],
)
def test_what_may_be_wanted(good: IPPool) -> None:
    validate_resource(good)
    assert good.spec.prefix.size


@pytest.mark.parametrize(
    "bad, field, rule",
    [
        (
            pool("10.0.0.0/27"),
            "spec.cidr = '10.0.0.0/27'",
            "IP pool size is too small: blockSize 26 needs a prefix of at most /26",
        ),
        (pool("fd00::/123"), "spec.cidr = 'fd00::/123'", "IP pool size is too small"),
        *(
            (
                pool(cidr, block_length=length),
                f"spec.blockSize = '{length}'",
                "blockSize must be between 20 and 32 for IPv4 pools, and between 116 and 128 for IPv6 pools",
            )
            for cidr, length in [("10.0.0.0/16", 19), ("10.0.0.0/16", 33), ("fd00::/64", 115), ("fd00::/64", 26)]
        ),
        (pool("169.254.5.0/24"), "spec.cidr", "IPPool CIDR overlaps with the link-local range 169.254.0.0/16"),
        (pool("160.0.0.0/4"), "spec.cidr", "IPPool CIDR overlaps with the link-local range 169.254.0.0/16"),
        (pool("fe80::/64"), "spec.cidr", "IPPool CIDR overlaps with the link-local range fe80::/10"),
        *(
            (pool(cidr), f"spec.cidr = '{cidr}'", f"IPPool CIDR overlaps with the {word} range {reserved}")
            for cidr, word, reserved in [
                ("0.5.0.0/16", "unspecified", "0.0.0.0/8"),
                ("::/64", "unspecified", "::/128"),
                ("127.10.0.0/16", "loopback", "127.0.0.0/8"),
                ("224.0.0.0/8", "multicast", "224.0.0.0/4"),
                ("239.255.255.0/24", "multicast", "224.0.0.0/4"),
                ("ff02::/64", "multicast", "ff00::/8"),
            ]
        ),
        (
            pool(ipip_mode=Encapsulation.ALWAYS, vxlan_mode=Encapsulation.ALWAYS),
            "spec.vxlanMode = 'Always'",
            "ipipMode and vxlanMode cannot both be enabled",
        ),
        (
            pool("fd00::/48", ipip_mode=Encapsulation.ALWAYS),
            "spec.ipipMode = 'Always'",
            "IPIP is not supported on IPv6 pools",
        ),
        (
            pool(allowed_uses=(*LOAD_BALANCER, AllowedUse.WORKLOAD)),
            "spec.allowedUses = 'LoadBalancer, Workload'",
            "LoadBalancer cannot be combined with other uses",
        ),
        (
            pool(allowed_uses=LOAD_BALANCER, ipip_mode=Encapsulation.ALWAYS),
            "spec.ipipMode",
            "must be Never with allowedUses LoadBalancer",
        ),
        (pool(allowed_uses=LOAD_BALANCER, vxlan_mode=Encapsulation.ALWAYS), "spec.vxlanMode", "must be Never with"),
        (pool(allowed_uses=LOAD_BALANCER, is_bgp_export_disabled=True), "spec.disableBGPExport", "must be false with"),
        (pool(allowed_uses=LOAD_BALANCER, node_selector="a == 'b'"), "spec.nodeSelector", r"must be all() with"),
        (pool(namespace_selector="a == 'b'"), "spec.namespaceSelector", "set allowedUses [Workload]"),  # trap 43
        (pool(node_selector="x" * 1025), f"spec.nodeSelector = '{'x' * 200}…'", "at most 1024 characters"),
        (
            pool(node_selector="global ()"),
            "spec.nodeSelector = 'global ()'",
            "global() cannot be used: it selects neither nodes nor namespaces",
        ),
        (
            pool(namespace_selector="has(a) && !(global() || has(b))", allowed_uses=(AllowedUse.WORKLOAD,)),
            "spec.namespaceSelector = 'has(a) && !(global() || has(b))'",
            "(global() cannot be used: it selects neither nodes nor namespaces)",
        ),
        (
            pool(node_selector="rack = 'a'"),
            "spec.nodeSelector = 'rack = 'a''",
            "(position 6: found '=', expected '==', '!=', 'contains', 'starts with', 'ends with', 'in' or 'not in')",
        ),
        (
            pool(namespace_selector="team in {'a'", allowed_uses=(AllowedUse.WORKLOAD,)),
            "spec.namespaceSelector = 'team in {'a''",
            "(position 13: found the end, expected ',' or '}')",
        ),
        *(
            (pool(name=name), f"metadata.name = '{name}'", "at most 253 lower-case letters, digits")
            for name in ["A", "a_b", "-a", "a-", "a..b", ".a", "ä"]
        ),
    ],
)
def test_what_may_not_be_wanted_is_refused_with_field_value_and_rule(bad: IPPool, field: str, rule: str) -> None:
    with pytest.raises(InvalidResource) as caught:
        validate_resource(bad)
    text = str(caught.value)
    assert text.startswith(f"IPPool({bad.metadata.name}): error with field {field}")
    assert rule in text
    assert isinstance(caught.value, ConfigurationError)


def test_a_name_has_at_most_253_characters() -> None:
    validate_resource(pool(name="a" * 253))
    with pytest.raises(InvalidResource, match=r"metadata\.name = 'a{200}…' \(at most 253 lower-case letters"):
        validate_resource(pool(name="a" * 254))


def test_a_selector_that_is_too_long_is_not_read_as_well() -> None:
    with pytest.raises(InvalidResource) as caught:
        validate_resource(pool(node_selector="%" * 1025))
    assert [problem.reason for problem in caught.value.field_errors] == ["at most 1024 characters"]


def test_every_selector_of_a_pool_is_judged() -> None:
    with pytest.raises(InvalidResource) as caught:
        validate_resource(pool(node_selector="a", namespace_selector="!", allowed_uses=(AllowedUse.WORKLOAD,)))
    assert [problem.field for problem in caught.value.field_errors] == ["spec.nodeSelector", "spec.namespaceSelector"]


@pytest.mark.parametrize("name", ["a", "A_b.c-1", "a/b", "example.org/tier", "x" * 63])
def test_labels_and_annotations_may_be_called_what_an_api_server_takes(name: str) -> None:
    validate_resource(
        evolve(pool(), metadata=Metadata(name="p", labels=((name, "a.B_c-9"),), annotations=((name.upper(), "!"),)))
    )
    validate_resource(evolve(pool(), metadata=Metadata(name="p", labels=((name, ""),))))


@pytest.mark.parametrize("name", ["", "a b", "-a", "a.", "x" * 64, "/a", "a/", "a/b/c", "A.b/c", "a_b/c"])
def test_a_label_that_no_api_server_takes_is_refused_everywhere(name: str) -> None:
    """A resource made on one store could not move to the other."""
    with pytest.raises(InvalidResource) as caught:
        validate_resource(evolve(pool(), metadata=Metadata(name="p", labels=((name, "x"),))))
    assert str(caught.value) == (
        f"IPPool(p): error with field metadata.labels = '{name}' (a name is at most 63 letters, digits, '-', '_' and "
        "'.', between letters or digits, and may have a DNS name and '/' before it)"
    )


@pytest.mark.parametrize("text", ["a b", "-", "x" * 64, "a="])
def test_the_text_of_a_label_is_judged_too(text: str) -> None:
    with pytest.raises(InvalidResource) as caught:
        validate_resource(evolve(pool(), metadata=Metadata(name="p", labels=(("tier", text),))))
    assert str(caught.value) == (
        f"IPPool(p): error with field metadata.labels[tier] = '{text}' (a label's text is at most 63 letters, digits, "
        "'-', '_' and '.', between letters or digits, or empty)"
    )


def test_the_name_of_an_annotation_is_judged_without_its_case() -> None:
    with pytest.raises(InvalidResource, match=r"metadata\.annotations = 'a b' \(a name is at most 63"):
        validate_resource(evolve(pool(), metadata=Metadata(name="p", annotations=(("A b", "x"),))))


def test_a_pool_has_no_namespace_and_bounded_annotations() -> None:
    metadata = Metadata(name="p", namespace="default", annotations=(("a", "b" * 256 * 1024),))
    with pytest.raises(InvalidResource) as caught:
        validate_resource(evolve(pool(), metadata=metadata))
    assert str(caught.value) == (
        "IPPool(p): error with field metadata.namespace = 'default' (IPPool is not namespaced); "
        "error with field metadata.annotations = '262145 bytes' (at most 262144 bytes in total)"
    )
    assert caught.value.value == "default"
    assert caught.value.accepted == "IPPool is not namespaced"


@pytest.mark.parametrize("cidr", ["1.2.3.0/24", "1.2.0.0/16", "1.2.3.128/25"])
def test_pools_do_not_overlap(cidr: str) -> None:
    """S-29 of the catalogue."""
    first = pool("1.2.3.0/24", name="ippool1")
    with pytest.raises(InvalidResource) as caught:
        validate_pool_overlaps(pool(cidr, name="ippool2"), [pool("9.0.0.0/8", name="far"), first])
    assert f"IPPool(ippool2) CIDR overlaps with IPPool(ippool1) CIDR {first.spec.prefix}" in str(caught.value)


def test_a_pool_does_not_overlap_itself_nor_the_other_family() -> None:
    wanted = pool("0.0.0.0/1")
    validate_pool_overlaps(wanted, [wanted, pool("::/1", name="six")], [Prefix.parse("::/122")])
    assert wanted.spec.prefix.overlaps(wanted.spec.prefix)


@pytest.mark.parametrize(
    "cidr, length, outcome",
    [
        ("1.2.3.0/26", 28, "refused"),
        ("1.2.3.0/26", 26, "accepted"),
        ("1.2.2.0/23", 28, "refused"),
        ("1.2.4.0/24", 28, "accepted"),
    ],
)
def test_blocks_that_an_earlier_pool_left_keep_their_size(cidr: str, length: int, outcome: str) -> None:
    """S-31 of the catalogue."""
    left = [Prefix.parse("1.2.3.0/26")]
    wanted = pool(cidr, block_length=length)
    if outcome == "accepted":
        validate_pool_overlaps(wanted, [], left)
        return
    text = "IPPool blocksSize conflicts with existing allocations that use a different blockSize: 1.2.3.0/26"
    with pytest.raises(InvalidResource) as caught:
        validate_pool_overlaps(wanted, [], left)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "wanted, rule",
    [
        (pool("1.2.4.0/24"), "IPPool CIDR cannot be modified; it is 1.2.3.0/24"),
        (pool("1.2.3.0/24", block_length=27), "IPPool BlockSize cannot be modified; it is 26"),
        (pool("1.2.3.0/24", allowed_uses=LOAD_BALANCER), "cannot be changed between LoadBalancer and other uses"),
    ],
)
def test_some_fields_never_change(wanted: IPPool, rule: str) -> None:
    """S-30 of the catalogue."""
    with pytest.raises(InvalidResource) as caught:
        validate_pool_update(pool("1.2.3.0/24"), wanted)
    assert rule in str(caught.value)


def test_networks_are_compared_and_not_their_spelling() -> None:
    stored = pool("fdf4:0:0::/64")
    validate_pool_update(stored, pool("fdf4::/64", is_disabled=True))
    assert str(stored.spec.prefix) == "fdf4::/64"


@pytest.mark.parametrize(
    "asked, sentences",
    [
        ({}, ()),
        ({"namespace_selector": "all()"}, ()),
        (
            {"has_outgoing_nat": True, "ipip_mode": Encapsulation.ALWAYS, "vxlan_mode": Encapsulation.CROSS_SUBNET},
            (),
        ),
        ({"node_selector": "has(a)", "namespace_selector": "has(b)", "assignment_mode": AssignmentMode.MANUAL}, ()),
        ({"allowed_uses": (AllowedUse.TUNNEL,)}, ()),
        ({"block_length": 23}, ()),
        (
            {"block_length": 22},
            (
                (
                    "blockSize 22: a block of so many addresses can outgrow what a datastore accepts, and then takes "
                    "no more; use 23 or more"
                ),
            ),
        ),
    ],
)
def test_what_is_kept_and_not_acted_upon_is_said(asked: Json, sentences: tuple[str, ...]) -> None:
    wanted = pool(**asked)  # type: ignore[arg-type] # any field of its spec
    assert resource_warnings(wanted) == tuple(f"IPPool(p): {sentence}" for sentence in sentences)


# --- other kinds -----------------------------------------------------------------------------------------------------


def configuration(name: str = "default", **spec: object) -> IPAMConfiguration:
    changed = evolve(IPAMConfigurationSpec(), **spec)  # type: ignore[arg-type] # any field of it
    return IPAMConfiguration(metadata=Metadata(name=name), spec=changed)


def profile(name: str) -> Profile:
    return Profile(metadata=Metadata(name=name))


def node(*orchestrators: str, name: str = "node-a") -> Node:
    names = tuple(OrchestratorReference(orchestrator=orchestrator, node_name=name) for orchestrator in orchestrators)
    return Node(metadata=Metadata(name=name), spec=NodeSpec(orchestrator_references=names))


@pytest.mark.parametrize(
    "good",
    [
        configuration(),
        configuration(is_affinity_strict=True, may_auto_allocate_blocks=False),
        configuration(is_affinity_strict=True, max_blocks_per_host=4, cooldown_s=60),
        configuration(vm_address_persistence="Disabled"),
        node(),
        node("k8s", name="node-a.example.org"),
        IPReservation(metadata=Metadata(name="r")),
        IPReservation(metadata=Metadata(name="r"), spec=IPReservationSpec(reserved=(Prefix.parse("10.0.0.1"),))),
        WorkloadEndpoint(
            metadata=Metadata(name="w", namespace="default"),
            spec=WorkloadEndpointSpec(orchestrator="cni", node="a", endpoint="eth0"),
        ),
        ClusterInformation(metadata=Metadata(name="default")),
        Profile(metadata=Metadata(name="knsx"), spec=ProfileSpec(egress=(PolicyRule(action=RuleAction.PASS),))),
    ],
)
def test_what_may_be_wanted_of_other_kinds(good: Resource) -> None:
    validate_resource(good)
    assert good.metadata.name


@pytest.mark.parametrize(
    "bad, sentences",
    [
        (
            configuration(may_auto_allocate_blocks=False),
            [
                (
                    "IPAMConfiguration(default): error with field spec.autoAllocateBlocks = 'false' "
                    "(must be true unless strictAffinity is: "
                    "a node without blocks would live on borrowed addresses alone)"
                )
            ],
        ),
        (
            configuration(max_blocks_per_host=4),
            ["error with field spec.maxBlocksPerHost = '4' (can only be set with strictAffinity true)"],
        ),
        (
            configuration(max_blocks_per_host=-1, cooldown_s=-2),
            [
                "error with field spec.maxBlocksPerHost = '-1' (must not be negative)",
                "error with field spec.ipCooldownSeconds = '-2' (must not be negative)",
            ],
        ),
        (
            configuration(vm_address_persistence="on"),
            ["error with field spec.kubeVirtVMAddressPersistence = 'on' (must be Enabled or Disabled)"],
        ),
        (
            configuration(name="mine"),
            ["error with field metadata.name = 'mine' (there is one IPAMConfiguration, and its name is default)"],
        ),
        (
            ClusterInformation(metadata=Metadata(name="mine")),
            ["error with field metadata.name = 'mine' (there is one ClusterInformation, and its name is default)"],
        ),
        (
            node("k8s", ""),
            ["error with field spec.orchRefs[1].orchestrator = '' (must name an orchestrator, such as k8s)"],
        ),
        (
            Profile(
                metadata=Metadata(name="p"),
                spec=ProfileSpec(
                    labels_to_apply=(("a b", "c"),),
                    ingress=(PolicyRule(action=RuleAction.ALLOW, icmp=ICMPMatch()),),
                    egress=(PolicyRule(action=RuleAction.ALLOW, not_icmp=ICMPMatch(code=1)),),
                ),
            ),
            [
                "error with field spec.labelsToApply = 'a b' (a name is",
                "error with field spec.ingress[0].icmp = '' (needs protocol ICMP or ICMPv6)",
                "error with field spec.egress[0].notICMP = '' (needs protocol ICMP or ICMPv6)",
                "error with field spec.egress[0].notICMP.code = '1' (needs type)",
            ],
        ),
        (
            NetworkPolicy(metadata=Metadata(name="p"), spec=NetworkPolicySpec(selector="a =")),
            [
                "error with field metadata.namespace = '' (NetworkPolicy needs the name of a namespace)",
                "error with field spec.selector = 'a =' (position 3",
            ],
        ),
        (
            GlobalNetworkPolicy(metadata=Metadata(name="p", namespace="x")),
            ["error with field metadata.namespace = 'x' (GlobalNetworkPolicy is not namespaced)"],
        ),
        (
            profile("kns.shop"),
            ["metadata.name = 'kns.shop' (profiles kns.* are made of the orchestrator's namespaces)"],
        ),
        (profile("ksa.shop.web"), ["(profiles ksa.* are made of the orchestrator's service accounts)"]),
        (profile("projectnetplug-default-allow"), ["(it is there in every cluster, and cannot be changed)"]),
        (node(name="Node_A"), ["error with field metadata.name = 'Node_A' (at most 253 lower-case letters, "]),
        (
            IPReservation(metadata=Metadata(name="r", namespace="n")),
            ["IPReservation(r): error with field metadata.namespace = 'n' (IPReservation is not namespaced)"],
        ),
    ],
)
def test_what_may_not_be_wanted_of_other_kinds(bad: Resource, sentences: list[str]) -> None:
    with pytest.raises(InvalidResource) as caught:
        validate_resource(bad)
    assert len(caught.value.field_errors) == len(sentences)
    assert all(sentence in str(caught.value) for sentence in sentences)


def controllers(*templates: HostEndpointTemplate) -> KubeControllersConfiguration:
    node = NodeController(host_endpoint=HostEndpointSettings(templates=templates))
    spec = KubeControllersSpec(controllers=Controllers(node=node))
    return KubeControllersConfiguration(metadata=Metadata(name="default"), spec=spec)


TEMPLATE = HostEndpointTemplate(generate_name="lan", interface_cidrs=(Prefix.parse("10.0.0.0/8"),))
TEMPLATES = "spec.controllers.node.hostEndpoint.templates"


@pytest.mark.parametrize(
    "templates, problem",
    [
        (
            [evolve(TEMPLATE, generate_name="A")],
            f"{TEMPLATES}[0].generateName = 'A' (must be a part of a resource's name)",
        ),
        ([TEMPLATE, TEMPLATE], f"{TEMPLATES}[1].generateName = 'lan' (another template has it too)"),
        (
            [evolve(TEMPLATE, interface_cidrs=())],
            f"{TEMPLATES}[0].interfaceCIDRs = '' (must be given, or interfacePattern)",
        ),
        (
            [evolve(TEMPLATE, interface_pattern="(")],
            (
                f"{TEMPLATES}[0].interfacePattern = '(' (no regular expression: missing ), unterminated subpattern at "
                "position 0)"
            ),
        ),
    ],
)
def test_templates_of_host_endpoints(templates: list[HostEndpointTemplate], problem: str) -> None:
    with pytest.raises(InvalidResource) as caught:
        validate_resource(controllers(*templates))
    assert str(caught.value) == f"KubeControllersConfiguration(default): error with field {problem}"


def test_a_selector_of_a_template_is_judged() -> None:
    with pytest.raises(InvalidResource, match=r"templates\[0\]\.nodeSelector = 'zone =='"):
        validate_resource(controllers(evolve(TEMPLATE, node_selector="zone ==")))
    validate_resource(controllers(evolve(TEMPLATE, node_selector="zone == 'a'"), evolve(TEMPLATE, generate_name="b")))


def test_of_the_settings_of_controllers_those_of_load_balancers_have_no_effect_yet() -> None:
    assert resource_warnings(controllers()) == ()
    named = KubeControllersConfiguration(
        metadata=Metadata(name="default"),
        spec=KubeControllersSpec(controllers=Controllers(load_balancer=LoadBalancerController())),
    )
    text = "controllers.loadBalancer is stored, but no controller assigns addresses yet"
    assert resource_warnings(named) == (f"KubeControllersConfiguration(default): {text}",)
    validate_resource(KubeControllersConfiguration(metadata=Metadata(name="default")))
