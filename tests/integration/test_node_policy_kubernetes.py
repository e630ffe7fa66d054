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
