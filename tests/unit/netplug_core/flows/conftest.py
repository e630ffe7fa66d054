"""A node with one pool of each family, for every test of a flow."""

import pytest

from tests.harness.cni_node import CNINodeHarness


@pytest.fixture
def harness() -> CNINodeHarness:
    made = CNINodeHarness()
    made.add_pool("four", "10.65.0.0/24")
    made.add_pool("six", "fd00:65::/120")
    return made
