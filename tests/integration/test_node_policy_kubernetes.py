"""The node process enforces the NetworkPolicies that users make in a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.node import CNIRuntime
from tests.harness.policy_shop import Shop, open_shop
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import make_namespace

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]


@pytest.fixture
def shop(api_server: ApiServer, runtime: CNIRuntime, tmp_path: Path) -> Iterator[Shop]:
    with open_shop(api_server, runtime, tmp_path) as opened:
        yield opened


def test_policies_of_the_cluster_are_enforced(shop: Shop) -> None:
    """P-1, P-2, P-3, P-11, P-12."""
    require_policies(shop)


@pytest.mark.night
@pytest.mark.etcd
@pytest.mark.parametrize("store", ["kubernetes", "etcd"])
def test_policies_are_enforced_where_another_program_makes_the_routes(
    request: pytest.FixtureRequest, api_server: ApiServer, runtime: CNIRuntime, tmp_path: Path, store: str
) -> None:
    """As the manifests for flannel and for policy alone have it: addresses of the pod CIDR, and no routing of ours."""
    etcd = request.getfixturevalue("etcd") if store == "etcd" else None
    with open_shop(api_server, runtime, tmp_path, etcd, uses_pod_cidrs=True) as shop:
        require_policies(shop)
        routes = runtime.node.run("ip", "route", "show", "proto", "78").splitlines()
        assert all(" dev netp" in each for each in routes), "those of the plugin lead to pods"
        assert not [name for name in runtime.node.links() if name.endswith(".netplug")]
        assert "table inet netplug\n" in runtime.node.run("nft", "list", "tables")


def require_policies(shop: Shop) -> None:
    """Policies that are made and changed, and labels that change, close and open ways between pods."""
    other = make_namespace(shop.server, f"{shop.namespace}-other")
    shop.attach("web", app="web")
    shop.attach("db", app="db")
    shop.attach("far", other, app="far")
    shop.wait_for(web_db=True, far_db=True, db_web=True)
    isolated: dict[str, object] = {"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"]}
    shop.apply("db", isolated)
    shop.wait_for(web_db=False, far_db=False, db_web=True)
    peers = [{"podSelector": {"matchLabels": {"app": "web"}}}, {"namespaceSelector": {"matchLabels": {"team": "y"}}}]
    shop.apply("db", {**isolated, "ingress": [{"from": peers}]})
    shop.wait_for(web_db=True, far_db=False)
    shop.relabel(f"/api/v1/namespaces/{other}", team="y")
    shop.wait_for(far_db=True)
    shop.relabel(shop.pod_path("web"), app="other")
    shop.wait_for(web_db=False)
