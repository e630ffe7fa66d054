"""NodeConfiguration: what a document may say, and the rules that a user's one has to keep."""

from collections.abc import Mapping

import pytest

from netplug_core.decoding.tables import MalformedField, UnknownField
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.fields import Metadata, PortRange
from netplug_core.resources.nodeconfiguration import NodeConfiguration, NodeConfigurationSpec, effective_settings
from netplug_core.resources.validation import InvalidResource, resource_warnings, validate_resource
from tests.harness.resources import resource_of

PREFIXES = "must be 1 to 15 letters, digits, '_' and '-', or several such prefixes with ',' between"
PORTS = "two ports up to 65535 with ':' between, such as 32768:65535, or one port"
INTERFACES = "must be the name of an interface, or the beginning of names and '+' or '*'"
LOG_PREFIXES = "must be at most 64 printable ASCII characters, with '%' only in %k, %n, %p, %t and %%"
LOG_RATES = "must be a number from 1 to 9999 and '/second', '/minute', '/hour' or '/day'"
HOSTS = "must be an IP address, or the name of a host"


FEATURES = "must be like ChecksumOffloadBroken=true, or several such with ',' between"


@pytest.mark.parametrize(
    "name, spec",
    [
        ("default", {}),
        ("node.node-a.example", {"logSeverityScreen": "None", "ipv6Support": False}),
        ("default", {"interfacePrefix": "netp,tap_-0", "mtuIfacePattern": "^(en|eth)"}),
        ("default", {"natOutgoingAddress": "10.0.0.1", "deviceRouteSourceAddress": "10.0.0.1"}),
        ("default", {"deviceRouteSourceAddressIPv6": "fd00::1", "vxlanMTU": 0, "vxlanMTUV6": 65535}),
        ("default", {"natOutgoingExclusions": "IPPoolsAndHostIPs", "natPortRange": "1024:2047"}),
        ("default", {"natOutgoingInterfaceFilter": "eth0.7", "externalNodesCIDRList": ["192.0.2.0/24", "fd00::/8"]}),
        ("default", {"healthHost": "localhost", "prometheusMetricsHost": "::1"}),
        ("default", {"healthHost": "0.0.0.0", "reportingInterval": "2h45m10s"}),
        ("default", {"workloadSourceSpoofing": "Any", "denyAction": "Reject", "disableConntrackInvalidCheck": True}),
        ("default", {"allowVXLANPacketsFromWorkloads": True, "allowIPIPPacketsFromWorkloads": False}),
        (
            "default",
            {"logPrefix": "np %k %n %p %t %%", "logActionRateLimit": "10/minute", "logActionRateLimitBurst": 1},
        ),
        ("default", {"policyRefreshInterval": "0"}),
        ("default", {"featureDetectOverride": "ChecksumOffloadBroken=true,MASQFullyRandom=false"}),
    ],
)
def test_what_may_be_wanted(name: str, spec: Mapping[str, object]) -> None:
    configuration = resource_of("NodeConfiguration", name, spec)
    validate_resource(configuration)
    assert resource_warnings(configuration) == ()


@pytest.mark.parametrize(
    "member, value, rule",
    [
        ("interfacePrefix", "netp,", PREFIXES),
        ("interfacePrefix", "net*", PREFIXES),
        ("interfacePrefix", "sixteen-letters_", PREFIXES),
        ("mtuIfacePattern", "(", "no regular expression: missing ), unterminated subpattern at position 0"),
        ("featureDetectOverride", "ChecksumOffloadBroken", FEATURES),
        ("featureDetectOverride", "ChecksumOffloadBroken=yes", FEATURES),
        ("natOutgoingAddress", "fd00::1", "must be an address of IPv4"),
        ("natOutgoingInterfaceFilter", "e*0", INTERFACES),
        ("natOutgoingInterfaceFilter", "sixteen.letters_", INTERFACES),
        ("deviceRouteSourceAddress", "fd00::1", "must be an address of IPv4"),
        ("deviceRouteSourceAddressIPv6", "10.0.0.1", "must be an address of IPv6"),
        ("healthHost", "a host", HOSTS),
        ("logPrefix", "a %x", LOG_PREFIXES),
        ("logPrefix", "ä", LOG_PREFIXES),
        ("logPrefix", "a" * 65, LOG_PREFIXES),
        ("logActionRateLimit", "0/second", LOG_RATES),
        ("logActionRateLimit", "10", LOG_RATES),
        ("prometheusMetricsHost", "10.0.0.0/8", HOSTS),
    ],
)
def test_what_may_not_be_wanted(member: str, value: str, rule: str) -> None:
    with pytest.raises(InvalidResource) as caught:
        validate_resource(resource_of("NodeConfiguration", "node.a", {member: value}))
    assert str(caught.value) == f"NodeConfiguration(node.a): error with field spec.{member} = '{value}' ({rule})"


def test_all_that_is_wrong_is_said() -> None:
    spec = {"interfacePrefix": "*", "mtuIfacePattern": "[", "natOutgoingAddress": "::1", "healthHost": "*"}
    with pytest.raises(InvalidResource) as caught:
        validate_resource(resource_of("NodeConfiguration", "Default", spec))
    assert [error.field for error in caught.value.field_errors] == [
        "metadata.name",
        "metadata.name",
        "spec.interfacePrefix",
        "spec.mtuIfacePattern",
        "spec.natOutgoingAddress",
        "spec.healthHost",
    ]


@pytest.mark.parametrize(
    "spec, problem",
    [
        (
            {"logSeverityScreen": "Loud"},
            "one of None, Debug, Info, Warning, Error, Fatal @ f#1 $.spec.logSever",
        ),
        ({"ipipMTU": -1}, "a whole number from 0 to 65535 @ f#1 $.spec.ipipMTU, found -1"),
        ({"vxlanVNI": 0}, "a whole number from 1 to 16777215 @ f#1 $.spec.vxlanVNI, found 0"),
        ({"natOutgoingExclusions": "All"}, "one of IPPoolsOnly, IPPoolsAndHostIPs @ f#1 $.spec.natOutgoingExclusions"),
        ({"natPortRange": "0:9"}, f"{PORTS} @ f#1 $.spec.natPortRange, found '0:9'"),
        ({"natPortRange": "9:8"}, f"{PORTS} @ f#1 $.spec.natPortRange, found '9:8'"),
        ({"natPortRange": "1:65536"}, f"{PORTS} @ f#1 $.spec.natPortRange, found '1:65536'"),
        ({"natPortRange": "all"}, f"{PORTS} @ f#1 $.spec.natPortRange, found 'all'"),
        ({"externalNodesCIDRList": ["192.0.2.1/24"]}, "a CIDR without host bits (192.0.2.0/24) @ f#1 $.spec.external"),
        ({"vxlanPort": 0}, "a port from 1 to 65535 @ f#1 $.spec.vxlanPort, found 0"),
        ({"ipipEnabled": "yes"}, "true or false @ f#1 $.spec.ipipEnabled, found 'yes'"),
        ({"floatingIPs": True}, "one of Enabled, Disabled @ f#1 $.spec.floatingIPs, found True"),
        ({"reportingInterval": "often"}, "a duration such as 90s or 15m0s, or 0 @ f#1 $.spec.reportingInterval, found"),
        (
            {"failsafeInboundHostPorts": [{"protocol": "TCP", "port": 22, "net": "10.0.0.1/8"}]},
            "a CIDR without host bits (10.0.0.0/8) @ f#1 $.spec.failsafeInboundHostPorts[0].net, found '10.0.0.1/8'",
        ),
        ({"workloadSourceSpoofing": "Enabled"}, "one of Disabled, Any @ f#1 $.spec.workloadSourceSpoofing, found"),
        ({"denyAction": "Accept"}, "one of Drop, Reject @ f#1 $.spec.denyAction, found 'Accept'"),
        ({"logActionRateLimitBurst": 0}, "a whole number from 1 to 9999 @ f#1 $.spec.logActionRateLimitBurst, found 0"),
        ({"policyRefreshInterval": "often"}, "a duration such as 90s or 15m0s, or 0 @ f#1 $.spec.policyRefreshInterv"),
        ({"defaultEndpointToHostAction": "Reject"}, "one of Drop, Return, Accept @ f#1 $.spec.defaultEndpointToHostA"),
    ],
)
def test_what_cannot_be_read(spec: Mapping[str, object], problem: str) -> None:
    with pytest.raises(MalformedField) as caught:
        resource_of("NodeConfiguration", "default", spec)
    assert str(caught.value).startswith(f"expected {problem}")


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(UnknownField, match=r"bpfEnabled @ f#1 \$\.spec; there are allowIPIPPacketsFromWorkloads, "):
        resource_of("NodeConfiguration", "default", {"bpfEnabled": True})


@pytest.mark.parametrize("spec", [{}, {"failsafeInboundHostPorts": []}, {"failsafeInboundHostPorts": None}])
def test_no_failsafe_ports_are_not_the_default_ones(spec: Mapping[str, object]) -> None:
    configuration = resource_of("NodeConfiguration", "default", spec)
    assert isinstance(configuration, NodeConfiguration)
    is_given = spec.get("failsafeInboundHostPorts") is not None
    assert configuration.spec.failsafe_inbound == (() if is_given else None)
    assert to_mapping(configuration)["spec"] == (spec if is_given else {})


@pytest.mark.parametrize("text, first, last", [("1024:2047", 1024, 2047), ("5000", 5000, 5000)])
def test_ports_are_read_and_written_in_full(text: str, first: int, last: int) -> None:
    configuration = resource_of("NodeConfiguration", "default", {"natPortRange": text})
    assert isinstance(configuration, NodeConfiguration)
    assert configuration.spec.nat_port_range == PortRange(first, last)
    assert to_mapping(configuration)["spec"] == {"natPortRange": f"{first}:{last}"}


def test_durations_stay_as_they_were_written() -> None:
    spec = {"routeRefreshInterval": "90s", "reportingInterval": "2m5s"}
    assert to_mapping(resource_of("NodeConfiguration", "default", spec))["spec"] == spec


# --- the settings of a node -------------------------------------------------------------------------------------------


def configuration(name: str, spec: NodeConfigurationSpec) -> NodeConfiguration:
    return NodeConfiguration(metadata=Metadata(name=name), spec=spec)


def test_the_settings_of_a_node_win_over_those_of_all() -> None:
    default = configuration("default", NodeConfigurationSpec(vxlan_mtu=1400, vxlan_vni=7, has_ipv6=True))
    own = configuration("node.n1", NodeConfigurationSpec(vxlan_mtu=0, has_ipv6=False, interface_prefix="x"))
    assert effective_settings((default, own), "n1") == NodeConfigurationSpec(
        vxlan_mtu=0, vxlan_vni=7, has_ipv6=False, interface_prefix="x"
    )
    assert effective_settings((own, default), "n2") == default.spec
    assert effective_settings((), "n1") == NodeConfigurationSpec()
