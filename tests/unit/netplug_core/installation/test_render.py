"""Everything that is installed, for a cluster as it will be."""

from typing import cast

from netplug_core.decoding.tables import find_object
from netplug_core.installation.controllers import controllers_of
from netplug_core.installation.daemonset import render
from netplug_core.installation.settings import ClusterFacts
from tests.harness.installations import make_pool, network, read


def test_a_new_cluster() -> None:
    found = render(read(), ClusterFacts(), version="1.2.3")
    assert [step.action.value for step in found.steps] == ["create"]
    assert [str(pool.spec.prefix) for pool in found.pools] == ["192.168.0.0/16"]
    assert found.conflist is not None
    assert '"assign_ipv4":"true","assign_ipv6":"false"' in found.conflist
    assert found.no_conflist_reason == ""
    assert found.environment["IP"] == "autodetect"
    assert found.config_map == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cni-config", "namespace": "netplug-system"},
        "data": {"config": found.conflist},
    }


def test_the_pools_of_a_cluster_decide_the_families() -> None:
    found = render(read(), ClusterFacts(pools=(make_pool("fd00::/48"),)), version="1.2.3")
    assert found.conflist is not None
    assert '"assign_ipv4":"false","assign_ipv6":"true"' in found.conflist


def test_no_conflist_before_there_is_a_pool() -> None:
    found = render(read(network(ipPools=[])), ClusterFacts(), version="1.2.3")
    assert (found.steps, found.pools, found.conflist, found.config_map) == ((), (), None, None)
    assert controllers_of(found) is None


def test_the_controllers_have_the_image_of_the_nodes_and_its_secrets() -> None:
    for settings, secrets in (({}, None), ({"imagePullSecrets": [{"name": "a"}]}, [{"name": "a"}])):
        found = render(read({**settings, "imagePullPolicy": "Always"}), ClusterFacts(), version="1.2.3")
        deployment = controllers_of(found)
        assert deployment is not None
        pod = find_object(deployment, "spec", "template", "spec")
        (container,) = cast("list[dict[str, object]]", pod["containers"])
        assert (container["image"], container["imagePullPolicy"]) == ("docker.io/netplug/node:v1.2.3", "Always")
        assert {"name": "DATASTORE_TYPE", "value": "kubernetes"} in cast("list[object]", container["env"])
        assert pod.get("imagePullSecrets") == secrets
