"""How long certificates and tokens are valid with which real clients identify themselves."""

from __future__ import annotations

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.orchestrator import KubernetesOrchestrator
from netplug_cli.node.stores import KnownCredentials
from netplug_cli.wiring.backends import open_datastore
from netplug_core.records import List
from netplug_core.resources.ippool import IPPOOL
from netplug_core.settings.model import DatastoreSettings
from tests.harness.servers.certificates import Certificates
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_role, open_client
from tests.harness.waiting import deadline_in


@pytest.mark.etcd
def test_the_certificate_of_an_etcd_client(
    etcd_with_client_certificates: EtcdCluster, certificates: Certificates
) -> None:
    settings = DatastoreSettings(
        etcd_endpoints=tuple(etcd_with_client_certificates.endpoints),
        etcd_ca_cert_file=str(certificates.root),
        etcd_cert_file=str(certificates.certificate),
        etcd_key_file=str(certificates.key),
    )
    known = KnownCredentials(SystemClock())
    with open_datastore(settings) as store, known.used_by(store):
        assert known.seconds_left() == {}, "nothing has been sent"
        store.read([List(IPPOOL)], deadline=deadline_in())
        ((name, left_s),) = known.seconds_left().items()
        assert name == ("etcdv3", store.description.location, "certificate")
        assert left_s > 0


@pytest.mark.apiserver
def test_the_token_of_a_client_of_the_api_server(api_server: ApiServer) -> None:
    kubeconfig = api_server.write_kubeconfig(install_role(api_server), name="credentials")
    orchestrator = KubernetesOrchestrator(open_client(api_server, kubeconfig=kubeconfig))
    known = KnownCredentials(SystemClock())
    with known.used_by(orchestrator):
        assert known.seconds_left() == {}, "nothing has been sent"
        assert orchestrator.find_namespace("netplug-system", deadline=deadline_in()) is not None
        ((name, left_s),) = known.seconds_left().items()
        assert name == ("kubernetes", api_server.url, "token")
        assert 0 < left_s <= 3600
    orchestrator.close()
