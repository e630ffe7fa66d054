"""P-1 to P-25 of the catalogue with pods and NetworkPolicies of a real API server, by night.

The records are those of the API server, or an etcd's, as the controllers write them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.node import CNIRuntime
from tests.harness.policy_shop import Shop, open_shop
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import make_namespace

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.etcd, pytest.mark.stress]

DB = {"podSelector": {"matchLabels": {"app": "db"}}}
WEB = {"podSelector": {"matchLabels": {"app": "web"}}}
TEAM = {"namespaceSelector": {"matchLabels": {"team": "y"}}}


@pytest.fixture(params=["kubernetes", "etcd"])
def shop(request: pytest.FixtureRequest, api_server: ApiServer, runtime: CNIRuntime, tmp_path: Path) -> Iterator[Shop]:
    """A node with the pods ``web``, ``db`` and ``other`` of one namespace, and ``far`` of another one."""
    etcd = request.getfixturevalue("etcd") if request.param == "etcd" else None
    with open_shop(api_server, runtime, tmp_path, etcd) as opened:
        opened.attach("web", app="web")
        opened.attach("db", ports={"http": 8081}, app="db")
        opened.attach("other", app="other")
        opened.attach("far", make_namespace(api_server, f"{opened.namespace}-far"), app="web")
        yield opened


def far(shop: Shop) -> str:
    return f"/api/v1/namespaces/{shop.namespace}-far"


def ingress(*rules: object) -> dict[str, object]:
    return {**DB, "policyTypes": ["Ingress"], "ingress": list(rules)}


def test_isolation_and_peers(shop: Shop) -> None:
    """P-1, P-2, P-3, P-5, P-6, P-7, P-8."""
    shop.wait_for(web_db=True, other_db=True, far_db=True, db_web=True)
    shop.apply("db", ingress())
    shop.wait_for(web_db=False, far_db=False, db_web=True)
    shop.apply("db", ingress({"from": [WEB]}))
    shop.wait_for(web_db=True, other_db=False, far_db=False)
    shop.apply("db", ingress({}))
    shop.wait_for(web_db=True, other_db=True, far_db=True)
    shop.apply("db", ingress())
    shop.apply("web", {**WEB, "policyTypes": ["Egress"], "egress": [{"to": [DB]}]})
    shop.wait_for(web_db=False, web_other=False, other_web=True)
    shop.apply("db", ingress({"from": [WEB]}))
    shop.wait_for(web_db=True, web_other=False)
    # Without policyTypes, rules of egress isolate both directions.
    shop.apply("db", {**DB, "egress": [{"to": [WEB]}]})
    shop.wait_for(web_db=False, other_db=False, db_web=True, db_other=False)


def test_labels_of_namespaces_and_pods(shop: Shop) -> None:
    """P-10, P-11, P-12."""
    shop.apply("db", ingress({"from": [{**TEAM, **WEB}]}))
    shop.wait_for(web_db=False, far_db=False)
    shop.relabel(far(shop), team="y")
    shop.wait_for(web_db=False, other_db=False, far_db=True)
    shop.relabel(f"{far(shop)}/pods/far", app="off")
    shop.wait_for(far_db=False)
    shop.apply("db", ingress({"from": [TEAM, WEB]}))
    shop.wait_for(web_db=True, other_db=False, far_db=True)
    shop.relabel(far(shop), team=None)
    shop.relabel(shop.pod_path("web"), app="off")
    shop.wait_for(web_db=False, far_db=False)


def test_prefixes_and_ports(shop: Shop) -> None:
    """P-13, P-14, P-16, P-20, P-25."""
    own = {"ipBlock": {"cidr": "10.68.0.0/24", "except": [f"{shop.pods['other'][1][0]}/32"]}}
    shop.apply("db", ingress({"from": [own]}))
    shop.wait_for_families("web", "db", [True, False])
    shop.wait_for_families("other", "db", [False, False])
    ports = [{"protocol": "UDP", "port": 80, "endPort": 90}, {"protocol": "UDP", "port": "http"}]
    shop.apply("db", ingress({"ports": ports}))
    shop.wait_for_ports("web", "db", p79=False, p80=True, p90=True, p91=False, p8081=True, p8082=False)
    shop.apply("db", ingress({"ports": [{"protocol": "TCP", "port": 80}]}))
    shop.wait_for_ports("web", "db", p80=False)
    shop.apply("db", ingress({"ports": [{"protocol": "UDP"}]}))
    shop.wait_for_ports("web", "db", p79=True, p8082=True)
