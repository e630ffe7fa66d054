"""Documents of the kinds of policy, for the judges of documents: the core and the schema of an API server."""

from collections.abc import Mapping

_ALLOW: Mapping[str, object] = {"action": "Allow"}
_TCP: Mapping[str, object] = {"action": "Allow", "protocol": "TCP"}

Document = tuple[str, str, Mapping[str, object]]


def _ingress(*rules: Mapping[str, object]) -> Mapping[str, object]:
    return {"ingress": rules}


_WHOLE_RULE: Mapping[str, object] = {
    "action": "Deny",
    "ipVersion": 4,
    "protocol": "TCP",
    "notProtocol": 17,
    "source": {
        "nets": ["10.0.0.0/8", "192.0.2.1"],
        "notNets": ["10.1.0.0/16"],
        "selector": "app == 'a'",
        "notSelector": "has(b)",
        "namespaceSelector": "global()",
        "serviceAccounts": {"names": ["web"], "selector": "has(role)"},
        "ports": [80, "8080:8090", "http"],
    },
    "destination": {"notPorts": [1, 65535, "x_1.y-z"]},
    "metadata": {"annotations": {"why": "because"}},
}
_OF_BOTH_GOOD: tuple[Mapping[str, object], ...] = (
    {},
    {
        "tier": "default",
        "order": 10.5,
        "selector": "app == 'a'",
        "serviceAccountSelector": "has(r)",
        "types": ["Egress"],
    },
    {"types": ["Ingress", "Egress"], "ingress": [], "egress": [_ALLOW, {"action": "Log"}]},
    _ingress(_WHOLE_RULE),
    _ingress(
        {**_ALLOW, "protocol": 6, "source": {"ports": [0]}},
        {**_ALLOW, "protocol": "ICMP", "icmp": {"type": 8, "code": 0}},
    ),
    _ingress({**_ALLOW, "protocol": 58, "notICMP": {}, "ipVersion": 6}),
    _ingress({**_ALLOW, "source": {"nets": ["fd80::/64"]}}),
)
_OF_BOTH_BAD: tuple[Mapping[str, object], ...] = (
    {"tier": "security"},
    {"order": "10"},
    {"types": ["Ingress", "Ingress"]},
    {"types": ["ingress"]},
    {"selector": "app =="},
    {"colour": "red"},
    _ingress({}),
    _ingress({"action": "Pass"}),
    _ingress({"action": "allow"}),
    _ingress({**_ALLOW, "colour": "red"}),
    _ingress({**_ALLOW, "http": {"methods": ["GET"]}}),
    _ingress({**_ALLOW, "source": {"services": {"name": "web"}}}),
    {"egress": [{**_ALLOW, "destination": {"services": {"name": "web"}}}]},
    _ingress({**_ALLOW, "ipVersion": 5}),
    _ingress({**_ALLOW, "protocol": "tcp"}),
    _ingress({**_ALLOW, "protocol": 0}),
    _ingress({**_ALLOW, "protocol": 256}),
    _ingress({**_ALLOW, "icmp": {"type": 8}}),
    _ingress({**_TCP, "notICMP": {"type": 8}}),
    _ingress({**_ALLOW, "protocol": "ICMP", "icmp": {"code": 8}}),
    _ingress({**_ALLOW, "protocol": "ICMP", "icmp": {"type": 256}}),
    _ingress({**_ALLOW, "protocol": "ICMP", "ipVersion": 6}),
    _ingress({**_ALLOW, "protocol": 58, "ipVersion": 4}),
    _ingress({**_ALLOW, "source": {"ports": [80]}}),
    _ingress({**_ALLOW, "protocol": "UDPLite", "destination": {"notPorts": [80]}}),
    _ingress({**_TCP, "source": {"ports": [65536]}}),
    _ingress({**_TCP, "source": {"ports": [-1]}}),
    _ingress({**_TCP, "source": {"ports": ["a b"]}}),
    _ingress({**_TCP, "source": {"ports": list(range(51))}}),
    _ingress({**_ALLOW, "source": {"nets": ["nonsense"]}}),
    _ingress({**_ALLOW, "source": {"notNets": [1]}}),
    _ingress({**_ALLOW, "source": {"nets": [f"10.{n // 256}.{n % 256}.0/24" for n in range(257)]}}),
    _ingress({**_ALLOW, "source": {"selector": "app =="}}),
    _ingress({**_ALLOW, "source": {"serviceAccounts": {"names": ["Web!"]}}}),
    _ingress(*[_ALLOW] * 1025),
)
# What only the core refuses: it would be too much work for the server to look at each part of each rule.
_OF_BOTH_CORE_ONLY: tuple[Mapping[str, object], ...] = (
    {"selector": "global()"},
    _ingress({**_TCP, "source": {"ports": ["9:8"]}}),
    _ingress({**_TCP, "source": {"ports": ["1:65536"]}}),
    _ingress({**_ALLOW, "source": {"nets": ["10.0.0.1/8"]}}),
    _ingress({**_ALLOW, "source": {"nets": ["10.0.0.0/33"]}}),
    _ingress({**_ALLOW, "source": {"nets": ["10.0.0.0/8", "fd80::/64"]}}),
    _ingress({**_ALLOW, "source": {"selector": "(has(a)"}}),
    _ingress({**_ALLOW, "source": {"notSelector": "global()"}}),
)


def _of_both(specs: tuple[Mapping[str, object], ...]) -> list[Document]:
    kinds = ("NetworkPolicy", "GlobalNetworkPolicy")
    return [(kind, f"p{number}", spec) for kind in kinds for number, spec in enumerate(specs)]


def _of_sets(*specs: Mapping[str, object]) -> list[Document]:
    return [
        (kind, f"s{number}", spec) for kind in ("NetworkSet", "GlobalNetworkSet") for number, spec in enumerate(specs)
    ]


GOOD: list[Document] = [
    *_of_both(_OF_BOTH_GOOD),
    ("GlobalNetworkPolicy", "all", {"namespaceSelector": "all()"}),
    ("GlobalNetworkPolicy", "false", {"doNotTrack": False, "preDNAT": False, "applyOnForward": False}),
    *_of_sets({}, {"nets": ["10.0.0.0/8", "192.0.2.1", "fd80::/64", "fd80::1"]}),
]
BAD: list[Document] = [
    *_of_both(_OF_BOTH_BAD),
    ("GlobalNetworkPolicy", "hook-1", {"doNotTrack": True}),
    ("GlobalNetworkPolicy", "hook-2", {"preDNAT": True}),
    ("GlobalNetworkPolicy", "hook-3", {"applyOnForward": True}),
    ("GlobalNetworkPolicy", "namespaces", {"namespaceSelector": "team =="}),
    ("NetworkPolicy", "namespaces", {"namespaceSelector": "all()"}),
    *_of_sets({"nets": ["nonsense"]}, {"nets": ["10.0.0.0/1234"]}, {"nets": [""]}, {"colour": "red"}),
]
CORE_ONLY: list[Document] = [
    *_of_both(_OF_BOTH_CORE_ONLY),
    *_of_sets({"nets": ["10.0.0.1/8"]}, {"nets": ["10.0.0.0/33"]}),
]
