"""The datastore's conformance suite on a real API server, in both groups of custom objects (D1, S-1, S-2, S-5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.clock import Clock
from netplug_core.testing.datastore_checks import DATASTORE_CHECKS, DatastoreCheck
from netplug_core.testing.datastore_conformance import datastore_conformance
from netplug_core.testing.datastore_harness import OpenStore
from tests.harness.example_counts import APISERVER_EXAMPLES
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import SAMPLES, delete_custom_objects, install_definitions, open_store

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module", params=list(CrdMode), ids=lambda mode: mode.name)
def make(request: pytest.FixtureRequest, api_server: ApiServer) -> OpenStore:
    """Opens an empty store."""
    mode: CrdMode = request.param
    install_definitions(api_server, mode)

    @contextmanager
    def opened(_clock: Clock) -> Iterator[KubernetesDatastore]:
        delete_custom_objects(api_server, mode)
        with open_store(api_server, mode) as store:
            yield store

    return opened


@pytest.mark.parametrize("check", DATASTORE_CHECKS, ids=lambda check: check.__name__)
def test_the_store_does_as_the_text_says(make: OpenStore, check: DatastoreCheck) -> None:
    check(make, samples=SAMPLES, make_clock=SystemClock)
    assert check.__name__


def test_the_store_agrees_with_a_dictionary_whatever_is_done(make: OpenStore) -> None:
    machine = datastore_conformance(make, samples=SAMPLES, make_clock=SystemClock).TestCase
    machine.settings = APISERVER_EXAMPLES
    machine().runTest()
    assert machine.settings is APISERVER_EXAMPLES
