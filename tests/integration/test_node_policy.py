"""The node process enforces stored policies on a real kernel, in both families."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netplug_core.addressing import Family
from netplug_core.resources.policyrule import EntityRule
from tests.harness.node import NetnsNode
from tests.harness.policies import allow, make_policy
from tests.harness.policy_node import PolicyNode, open_policy_node

pytestmark = [pytest.mark.netns]


@pytest.fixture(params=Family, ids=str)
def here(node: NetnsNode, request: pytest.FixtureRequest) -> Iterator[PolicyNode]:
    with open_policy_node(node, request.param) as made:
        yield made


WEB = "app == 'web'"


def test_a_stored_policy_closes_a_workload(here: PolicyNode) -> None:
    """P-1, P-2, P-3."""
    here.start()
    here.wait_for_line("policy is programmed")
    here.wait_for()
    isolating = make_policy("isolate", selector=WEB)
    here.put(isolating)
    here.wait_for(client_web=False, outside_web=False)
    here.put(make_policy("isolate", allow(source=EntityRule(selector="app == 'client'")), selector=WEB))
    here.wait_for(outside_web=False)
    here.remove(isolating)
    here.wait_for()
