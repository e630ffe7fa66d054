"""The datastore's conformance suite on a real API server, in both groups of custom objects (D1, S-1, S-2, S-5)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import HasIdentity
from netplug_core.testing.datastore_conformance import datastore_conformance
from netplug_core.testing.datastore_harness import Medium, OpenMedium
from tests.harness.example_counts import APISERVER_EXAMPLES
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    SAMPLES,
    delete_custom_objects,
    install_definitions,
    install_role,
    open_store,
)

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module", params=list(CrdMode), ids=lambda mode: mode.name)
def open_medium(request: pytest.FixtureRequest, api_server: ApiServer) -> OpenMedium:
    """Empties the group of custom objects. Nothing makes a server forget its history at once."""
    mode: CrdMode = request.param
    install_definitions(api_server, mode)

    @contextmanager
    def opened(_clock: Clock) -> Iterator[Medium]:
        delete_custom_objects(api_server, mode)
        yield Medium(lambda: open_store(api_server, mode), hold=lambda: paused(api_server))

    return opened


@contextmanager
def paused(server: ApiServer) -> Iterator[None]:
    """The server does not answer."""
    server.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.signal(signal.SIGCONT)


def test_the_store_conforms(open_medium: OpenMedium) -> None:
    suite = datastore_conformance(open_medium, samples=SAMPLES, make_clock=SystemClock)
    suite.settings = APISERVER_EXAMPLES
    result = suite().run()
    assert result is not None
    assert result.wasSuccessful(), (result.errors + result.failures)[0][1]


def test_the_identity_is_the_uid_of_kube_system(open_medium: OpenMedium, api_server: ApiServer) -> None:
    clock = SystemClock()
    with open_medium(clock) as medium, medium.open_handle() as store:
        assert isinstance(store, HasIdentity)
        found = store.find_identity(deadline=Deadline.after(clock, 30))
    metadata = api_server.get("/api/v1/namespaces/kube-system")["metadata"]
    assert isinstance(metadata, dict)
    assert found == metadata["uid"]


def test_without_the_right_the_server_and_its_authority_are_the_identity(api_server: ApiServer) -> None:
    """The same for both accounts, and another one than with the right."""
    install_definitions(api_server, CrdMode.V1)
    found = []
    for without in (None, ("namespaces", "get")):
        kubeconfig = api_server.write_kubeconfig(install_role(api_server, without=without), name="identity")
        for _ in range(2):
            with open_store(api_server, CrdMode.V1, kubeconfig=kubeconfig) as store:
                found.append(store.find_identity(deadline=Deadline.after(SystemClock(), 30)))
    assert found[0] == found[1] != found[2] == found[3]
