"""Documents of the kinds that describe the network of nodes, and who refuses them: the core, an API server, or both.

Each is a kind, a name, and a spec. ``test_kubernetes_definitions`` asks both judges.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["BAD", "CORE_ONLY", "GOOD", "SERVER_ONLY"]

_LAN = {"node": "node-a", "interfaceName": "eth0"}
_WEB = {"name": "web", "protocol": "TCP", "port": 80}
_PASSWORD = {"secretKeyRef": {"name": "bgp", "key": "password"}}
_PEER = {"peerIP": "192.0.2.1", "asNumber": 65001}
_SSH = {"protocol": "TCP", "port": 22, "net": "10.1.0.0/16"}
_REJECT = {"action": "Reject"}
_WITHIN = {"cidr": "10.91.1.0/24", "matchOperator": "In", "action": "Accept"}
_EDGE = {"name": "edge", "value": "65001:100"}

# What both judges accept.
GOOD: list[tuple[str, str, Mapping[str, object]]] = [
    ("HostEndpoint", "every", {"node": "node-a", "interfaceName": "*", "profiles": ["projectnetplug-default-allow"]}),
    ("HostEndpoint", "addresses", {"node": "a.example", "expectedIPs": ["10.1.0.1", "fd80::1"], "ports": []}),
    ("HostEndpoint", "ports", {**_LAN, "expectedIPs": ["10.1.0.1"], "ports": [_WEB, {**_WEB, "protocol": "UDP"}]}),
    (
        "BGPConfiguration",
        "default",
        {"asNumber": 4294967295, "nodeToNodeMeshEnabled": False, "logSeverityScreen": "Info"},
    ),
    ("BGPConfiguration", "default", {"nodeMeshPassword": _PASSWORD, "nodeMeshMaxRestartTime": "2m5s"}),
    ("BGPConfiguration", "default", {"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}, {"cidr": "fd80::/112"}]}),
    ("BGPConfiguration", "node.node-a", {"listenPort": 178, "bindMode": "NodeIP", "ignoredInterfaces": ["kube-*"]}),
    (
        "BGPConfiguration",
        "node.a.example",
        {"communities": [_EDGE], "prefixAdvertisements": [{"cidr": "10.1.0.0/16", "communities": ["edge", "1:2:3"]}]},
    ),
    ("BGPPeer", "router", {**_PEER, "reachableBy": "10.0.0.1", "ttlSecurity": 255, "nextHopMode": "Keep"}),
    ("BGPPeer", "port", {"peerIP": "192.0.2.1:179", "asNumber": 65001, "node": "node-a", "password": _PASSWORD}),
    ("BGPPeer", "six", {"peerIP": "fd80::1", "asNumber": 65001, "nodeSelector": "rack == 'r1'"}),
    ("BGPPeer", "six-port", {"peerIP": "[fd80::1]:179", "asNumber": 65001, "sourceAddress": "None"}),
    ("BGPPeer", "nodes", {"peerSelector": "has(reflector)", "numAllowedLocalASNumbers": 0, "maxRestartTime": "2m5s"}),
    ("BGPPeer", "filters", {**_PEER, "filters": ["edge", "a.example"], "localASNumber": 64600, "keepaliveTime": "30s"}),
    ("BGPPeer", "manual", {"peerSelector": "all()", "reversePeering": "Manual", "keepOriginalNextHop": False}),
    ("BGPPeer", "workloads", {"localWorkloadSelector": "app == 'router'", "asNumber": 65001}),
    ("BGPPeer", "keep", {**_PEER, "keepOriginalNextHop": True, "nextHopMode": "Keep"}),
    ("BGPConfiguration", "default", {"clusterRoutingMode": "Node"}),
    ("BGPFilter", "empty", {}),
    ("BGPFilter", "order", {"exportV4": [{**_REJECT, "cidr": "10.91.1.0/24", "matchOperator": "In"}, _WITHIN]}),
    ("BGPFilter", "six", {"importV6": [{**_REJECT, "cidr": "fd80::/64", "matchOperator": "NotEqual"}]}),
    (
        "BGPFilter",
        "every",
        {
            "exportV4": [
                {
                    **_WITHIN,
                    "prefixLength": {"min": 24, "max": 32},
                    "source": "RemotePeers",
                    "interface": "eth*",
                    "peerType": "eBGP",
                    "communities": {"values": ["65001:100"]},
                    "asPathPrefix": [65001, 4200000000],
                    "priority": 100,
                    "operations": [
                        {"addCommunity": {"value": "1:2:3"}},
                        {"prependASPath": {"prefix": [64512, 64512]}},
                        {"setPriority": {"value": 2147483646}},
                    ],
                }
            ]
        },
    ),
    ("NodeConfiguration", "default", {}),
    ("NodeConfiguration", "default", {"interfacePrefix": "netp,tap-", "mtuIfacePattern": "^en", "ipipMTU": 0}),
    ("NodeConfiguration", "default", {"vxlanEnabled": True, "vxlanMTU": 1450, "vxlanPort": 4789, "vxlanVNI": 16777215}),
    ("NodeConfiguration", "node.a", {"failsafeInboundHostPorts": [], "failsafeOutboundHostPorts": [_SSH]}),
    ("NodeConfiguration", "node.a", {"healthHost": "localhost", "healthPort": 9099, "healthEnabled": True}),
    ("NodeConfiguration", "node.a", {"prometheusMetricsHost": "fd80::1", "prometheusMetricsPort": 9091}),
    ("NodeConfiguration", "node.a", {"natOutgoingAddress": "10.1.0.1", "deviceRouteSourceAddressIPv6": "fd80::1"}),
    ("NodeConfiguration", "node.a", {"natOutgoingExclusions": "IPPoolsAndHostIPs", "natPortRange": "32768:65535"}),
    ("NodeConfiguration", "node.a", {"natPortRange": "5000", "natOutgoingInterfaceFilter": "eth+"}),
    ("NodeConfiguration", "node.a", {"externalNodesCIDRList": ["192.0.2.0/24", "fd80::1/128"]}),
    ("NodeConfiguration", "node.a", {"routeRefreshInterval": "2h45m10s", "reportingInterval": "0"}),
    ("NodeConfiguration", "node.a", {"defaultEndpointToHostAction": "Return", "floatingIPs": "Enabled"}),
]

# What both refuse.
BAD: list[tuple[str, str, Mapping[str, object]]] = [
    ("BGPPeer", "selector", {"peerSelector": "zone =="}),
    ("HostEndpoint", "no-node", {"interfaceName": "*"}),
    ("HostEndpoint", "no-name", {**_LAN, "node": "Node_A"}),
    ("HostEndpoint", "no-interface", {"node": "node-a", "expectedIPs": []}),
    ("HostEndpoint", "long-interface", {**_LAN, "interfaceName": "sixteen.letters_"}),
    ("HostEndpoint", "range", {**_LAN, "expectedIPs": ["10.1.0.0/24"]}),
    ("HostEndpoint", "profile", {**_LAN, "profiles": ["Web!"]}),
    ("HostEndpoint", "ports", {**_LAN, "ports": [_WEB]}),
    ("HostEndpoint", "port", {**_LAN, "expectedIPs": ["10.1.0.1"], "ports": [{**_WEB, "port": 0}]}),
    ("HostEndpoint", "port-name", {**_LAN, "expectedIPs": ["10.1.0.1"], "ports": [{**_WEB, "name": "a b"}]}),
    ("HostEndpoint", "no-protocol", {**_LAN, "expectedIPs": ["10.1.0.1"], "ports": [{"name": "a", "port": 1}]}),
    ("HostEndpoint", "unknown", {**_LAN, "colour": "red"}),
    ("BGPConfiguration", "another", {}),
    ("BGPConfiguration", "node.node-a", {"asNumber": 64512}),
    ("BGPConfiguration", "node.node-a", {"nodeToNodeMeshEnabled": False}),
    ("BGPConfiguration", "node.node-a", {"nodeMeshPassword": _PASSWORD}),
    ("BGPConfiguration", "node.node-a", {"nodeMeshMaxRestartTime": "2m"}),
    ("BGPConfiguration", "node.node-a", {"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]}),
    ("BGPConfiguration", "node.node-a", {"serviceExternalIPs": [{"cidr": "10.96.0.0/12"}]}),
    ("BGPConfiguration", "node.node-a", {"serviceLoadBalancerIPs": [{"cidr": "10.96.0.0/12"}]}),
    ("BGPConfiguration", "default", {"asNumber": 0}),
    ("BGPConfiguration", "default", {"asNumber": 4294967296}),
    ("BGPConfiguration", "default", {"asNumber": -1}),
    ("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False, "nodeMeshPassword": _PASSWORD}),
    ("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False, "nodeMeshMaxRestartTime": "2m"}),
    ("BGPConfiguration", "default", {"nodeMeshPassword": {"secretKeyRef": {"name": "bgp"}}}),
    ("BGPConfiguration", "default", {"nodeMeshPassword": {"secretKeyRef": {"name": "BGP", "key": "password"}}}),
    ("BGPConfiguration", "default", {"nodeMeshPassword": {"secretKeyRef": {"name": "bgp", "key": "a/b"}}}),
    ("BGPConfiguration", "default", {"nodeMeshMaxRestartTime": "soon"}),
    ("BGPConfiguration", "default", {"listenPort": 0}),
    ("BGPConfiguration", "default", {"bindMode": "Everything"}),
    ("BGPConfiguration", "default", {"serviceClusterIPs": [{}]}),
    ("BGPConfiguration", "default", {"serviceClusterIPs": [{"cidr": "10.96.0.1/12"}]}),
    ("BGPConfiguration", "default", {"communities": [{**_EDGE, "value": "65001"}]}),
    ("BGPConfiguration", "default", {"communities": [_EDGE, _EDGE]}),
    ("BGPConfiguration", "default", {"prefixAdvertisements": [{"cidr": "all"}]}),
    ("BGPConfiguration", "default", {"ignoredInterfaces": ["a b"]}),
    ("BGPPeer", "nobody", {}),
    ("BGPPeer", "nodes", {**_PEER, "node": "node-a", "nodeSelector": "all()"}),
    ("BGPPeer", "no-node", {**_PEER, "node": "Node_A"}),
    ("BGPPeer", "peers", {**_PEER, "peerSelector": "all()"}),
    ("BGPPeer", "no-as", {"peerIP": "192.0.2.1"}),
    ("BGPPeer", "as-of-nodes", {"peerSelector": "all()", "asNumber": 65001}),
    ("BGPPeer", "negative", {**_PEER, "asNumber": -1}),
    ("BGPPeer", "name", {**_PEER, "peerIP": "router.example"}),
    ("BGPPeer", "no-port", {**_PEER, "peerIP": "192.0.2.1:"}),
    ("BGPPeer", "no-brackets", {**_PEER, "peerIP": "[fd80::1]"}),
    ("BGPPeer", "range", {**_PEER, "peerIP": "192.0.2.0/24"}),
    ("BGPPeer", "gateway", {"peerSelector": "all()", "reachableBy": "10.0.0.1"}),
    ("BGPPeer", "gateway-name", {**_PEER, "reachableBy": "router"}),
    ("BGPPeer", "secret", {**_PEER, "password": {"secretKeyRef": {"name": "BGP", "key": "password"}}}),
    ("BGPPeer", "source", {**_PEER, "sourceAddress": "10.0.0.1"}),
    ("BGPPeer", "next-hop", {**_PEER, "nextHopMode": "Never"}),
    ("BGPPeer", "restart", {**_PEER, "maxRestartTime": "soon"}),
    ("BGPPeer", "local", {**_PEER, "numAllowedLocalASNumbers": -1}),
    ("BGPPeer", "hops", {**_PEER, "ttlSecurity": 0}),
    ("BGPPeer", "filters", {**_PEER, "filters": ["Some!"]}),
    ("BGPPeer", "unknown", {**_PEER, "colour": "red"}),
    ("BGPPeer", "workloads-as", {"localWorkloadSelector": "all()"}),
    ("BGPPeer", "workloads-and-peers", {"localWorkloadSelector": "all()", "peerSelector": "all()", "asNumber": 65001}),
    ("BGPPeer", "keep", {**_PEER, "keepOriginalNextHop": True, "nextHopMode": "Self"}),
    ("BGPPeer", "reverse", {**_PEER, "reversePeering": "Never"}),
    ("BGPPeer", "alive", {**_PEER, "keepaliveTime": "soon"}),
    ("BGPConfiguration", "node.node-a", {"clusterRoutingMode": "BGP"}),
    ("BGPConfiguration", "default", {"clusterRoutingMode": "Bird"}),
    ("BGPFilter", "action", {"exportV4": [{}]}),
    ("BGPFilter", "operator", {"exportV4": [{**_REJECT, "cidr": "10.0.0.0/8"}]}),
    ("BGPFilter", "operator-alone", {"exportV4": [{**_REJECT, "matchOperator": "In"}]}),
    ("BGPFilter", "family", {"exportV6": [{**_REJECT, "cidr": "10.0.0.0/8", "matchOperator": "In"}]}),
    ("BGPFilter", "host-bits", {"importV4": [{**_REJECT, "cidr": "10.0.0.1/8", "matchOperator": "In"}]}),
    ("BGPFilter", "length-alone", {"exportV4": [{**_REJECT, "prefixLength": {"min": 8}}]}),
    ("BGPFilter", "length", {"exportV4": [{**_WITHIN, "prefixLength": {"max": 33}}]}),
    ("BGPFilter", "lengths", {"exportV4": [{**_WITHIN, "prefixLength": {"min": 32, "max": 24}}]}),
    ("BGPFilter", "source", {"importV4": [{**_REJECT, "source": "RemotePeers"}]}),
    ("BGPFilter", "interface", {"exportV4": [{**_REJECT, "interface": "a b"}]}),
    ("BGPFilter", "communities", {"exportV4": [{**_REJECT, "communities": {"values": []}}]}),
    ("BGPFilter", "community", {"exportV4": [{**_REJECT, "communities": {"values": ["edge"]}}]}),
    ("BGPFilter", "priority", {"exportV4": [{**_REJECT, "priority": 0}]}),
    ("BGPFilter", "operations", {"exportV4": [{**_REJECT, "operations": [{"setPriority": {"value": 1}}]}]}),
    ("BGPFilter", "no-operation", {"exportV4": [{**_WITHIN, "operations": [{}]}]}),
    ("BGPFilter", "no-numbers", {"exportV4": [{**_WITHIN, "operations": [{"prependASPath": {"prefix": []}}]}]}),
    ("BGPFilter", "many", {"exportV4": [{**_WITHIN, "operations": [{"setPriority": {"value": 1}}] * 11}]}),
    ("BGPPeer", "long-selector", {"peerSelector": f"a == '{'x' * 1024}'"}),
    ("NodeConfiguration", "another", {}),
    ("NodeConfiguration", "default", {"logSeverityScreen": "Loud"}),
    ("NodeConfiguration", "default", {"interfacePrefix": "netp,"}),
    ("NodeConfiguration", "default", {"interfacePrefix": "sixteen-letters_"}),
    ("NodeConfiguration", "default", {"ipipMTU": -1}),
    ("NodeConfiguration", "default", {"vxlanMTU": 65536}),
    ("NodeConfiguration", "default", {"vxlanPort": 0}),
    ("NodeConfiguration", "default", {"vxlanVNI": 16777216}),
    ("NodeConfiguration", "default", {"natOutgoingAddress": "fd80::1"}),
    ("NodeConfiguration", "default", {"natOutgoingExclusions": "All"}),
    ("NodeConfiguration", "default", {"natPortRange": "1-2"}),
    ("NodeConfiguration", "default", {"natPortRange": 5000}),
    ("NodeConfiguration", "default", {"natOutgoingInterfaceFilter": "eth+0"}),
    ("NodeConfiguration", "default", {"externalNodesCIDRList": ["192.0.2.1/24"]}),
    ("NodeConfiguration", "default", {"deviceRouteSourceAddress": "eth0"}),
    ("NodeConfiguration", "default", {"deviceRouteSourceAddressIPv6": "10.1.0.1"}),
    ("NodeConfiguration", "default", {"defaultEndpointToHostAction": "Reject"}),
    ("NodeConfiguration", "default", {"failsafeInboundHostPorts": [{**_SSH, "net": "10.1.0.1/16"}]}),
    ("NodeConfiguration", "default", {"failsafeInboundHostPorts": [{"protocol": "TCP"}]}),
    ("NodeConfiguration", "default", {"failsafeOutboundHostPorts": [{**_SSH, "protocol": "tcp"}]}),
    ("NodeConfiguration", "default", {"floatingIPs": True}),
    ("NodeConfiguration", "default", {"healthHost": "a host"}),
    ("NodeConfiguration", "default", {"prometheusMetricsPort": 65536}),
    ("NodeConfiguration", "default", {"routeRefreshInterval": "often"}),
    ("NodeConfiguration", "default", {"bpfEnabled": True}),
]

# What the core alone refuses: a pattern compares no numbers, and a rule about one item does not see the other lists.
CORE_ONLY: list[tuple[str, str, Mapping[str, object]]] = [
    ("BGPConfiguration", "default", {"communities": [{**_EDGE, "value": "65001:65536"}]}),
    ("BGPConfiguration", "default", {"prefixAdvertisements": [{"cidr": "10.1.0.0/16", "communities": ["edge"]}]}),
    ("BGPConfiguration", "default", {"ignoredInterfaces": ["*"]}),
    ("BGPPeer", "port", {**_PEER, "peerIP": "192.0.2.1:65536"}),
    ("BGPPeer", "family", {**_PEER, "reachableBy": "fd80::1"}),
    ("BGPFilter", "community", {"exportV4": [{**_REJECT, "communities": {"values": ["1:65536"]}}]}),
    ("NodeConfiguration", "default", {"mtuIfacePattern": "("}),
    ("NodeConfiguration", "default", {"natPortRange": "2:1"}),
]

# What the server alone refuses: lists have a bound there, and the core also reads the text of an AS number.
SERVER_ONLY: list[tuple[str, str, Mapping[str, object]]] = [
    ("BGPConfiguration", "default", {"asNumber": "1.10"}),
    ("BGPFilter", "very-many", {"exportV4": [_REJECT] * 65}),
    ("HostEndpoint", "very-many", {**_LAN, "profiles": ["web"] * 257}),
]
