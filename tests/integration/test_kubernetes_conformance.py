"""The datastore's conformance suite on a real API server, in both groups of custom objects (D1, S-1, S-2, S-5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.layout import Mode
from netplug_core.clock import Clock
from netplug_core.testing.bench import Make
from netplug_core.testing.datastore import datastore_conformance
from netplug_core.testing.datastore_checks import DATASTORE_CHECKS, DatastoreCheck
from tests.integration.effort import FEWER
from tests.integration.kube_cluster import SAMPLES, empty, install_definitions, open_store
from tests.integration.kube_server import ApiServer

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module", params=list(Mode), ids=lambda mode: mode.name)
def make(request: pytest.FixtureRequest, api_server: ApiServer) -> Make:
    """Opens an empty store."""
    mode: Mode = request.param
    install_definitions(api_server, mode)

    @contextmanager
    def opened(_clock: Clock) -> Iterator[KubernetesDatastore]:
        empty(api_server, mode)
        with open_store(api_server, mode) as store:
            yield store

    return opened


@pytest.mark.parametrize("check", DATASTORE_CHECKS, ids=lambda check: check.__name__)
def test_the_store_does_as_the_text_says(make: Make, check: DatastoreCheck) -> None:
    check(make, samples=SAMPLES, clock=SystemClock)
    assert check.__name__


def test_the_store_agrees_with_a_dictionary_whatever_is_done(make: Make) -> None:
    machine = datastore_conformance(make, samples=SAMPLES, clock=SystemClock).TestCase
    machine.settings = FEWER
    machine().runTest()
    assert machine.settings is FEWER
