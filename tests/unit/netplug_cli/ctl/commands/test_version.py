"""The versions of the tool and of the cluster."""

from netplug_cli.release import RELEASE
from netplug_core.records import Create
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.metadata import Metadata
from tests.unit.netplug_cli.ctl.bench import Bench

CLIENT = f"Client Version: v{RELEASE}\n"


def test_an_unset_version_is_unknown(bench: Bench) -> None:
    assert bench.type("version") == 0
    assert bench.out == CLIENT + "Cluster Version: unknown\nCluster Type: unknown\n"


def test_what_the_cluster_says(bench: Bench) -> None:
    spec = ClusterInformationSpec(version="v1.2.3", cluster_type="k8s,kdd")
    value = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
    bench.put(Create(CLUSTER_INFORMATION_KEY, value))
    assert bench.type("version") == 0
    assert bench.out == CLIENT + "Cluster Version: v1.2.3\nCluster Type: k8s,kdd\n"


def test_a_store_that_is_away_is_said_after_the_client_part(bench: Bench) -> None:
    bench.is_away = True
    assert bench.type("version") == 1
    assert bench.out == CLIENT
    assert bench.err == "netplugctl: /nowhere: unable to open the file\n"


def test_the_client_part_needs_no_store(bench: Bench) -> None:
    bench.is_away = True
    assert bench.type("version", "--client") == 0
    assert bench.out == CLIENT
