"""The versions of the tool and of the cluster."""

import pytest

from netplug_core import __version__
from netplug_core.records import Create
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.metadata import Metadata
from tests.harness.ctl import ToolHarness

CLIENT = f"Client Version: v{__version__}\n"


def test_an_unset_version_is_unknown(harness: ToolHarness) -> None:
    assert harness.run_command("version") == 0
    assert harness.out == CLIENT + "Cluster Version: unknown\nCluster Type: unknown\n"


def test_what_the_cluster_says(harness: ToolHarness) -> None:
    spec = ClusterInformationSpec(version="v1.2.3", cluster_type="k8s,kdd")
    value = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
    harness.store_records(Create(CLUSTER_INFORMATION_KEY, value))
    assert harness.run_command("version") == 0
    assert harness.out == CLIENT + "Cluster Version: v1.2.3\nCluster Type: k8s,kdd\n"


def test_a_store_that_is_away_is_said_after_the_client_part(harness: ToolHarness) -> None:
    harness.is_unavailable = True
    assert harness.run_command("version") == 1
    assert harness.out == CLIENT
    assert harness.err == "netplugctl: /nowhere: unable to open the file\n"


def test_the_client_part_needs_no_store(harness: ToolHarness) -> None:
    harness.is_unavailable = True
    assert harness.run_command("version", "--client") == 0
    assert harness.out == CLIENT


def cluster(harness: ToolHarness, version: str) -> None:
    spec = ClusterInformationSpec(version=version)
    harness.store_records(
        Create(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec))
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["get", "pools"],
        ["delete", "pool", "a"],
        ["label", "pool", "a", "b=c"],
        ["patch", "pool", "a", "-p", "{}"],
        ["ipam", "show"],
        ["ipam", "configure", "--strictaffinity", "true"],
        ["create", "-f", "{file}"],
        ["apply", "-f", "{file}"],
        ["replace", "-f", "{file}"],
    ],
)
def test_an_older_tool_is_refused(harness: ToolHarness, argv: list[str]) -> None:
    """S-50 of the catalogue."""
    file = harness.write_pools(("a", "10.0.0.0/16"))
    cluster(harness, "v3.34.0")
    commits = harness.store.calls.commits
    words = [word.format(file=file) if word == "{file}" else word for word in argv]
    assert harness.run_command(*words) == 1
    assert harness.err.startswith(
        f"netplugctl: version mismatch. This is {__version__}, and the cluster runs v3.34.0: "
    )
    assert harness.err.count("\n") == 1
    assert harness.store.calls.commits == commits
    for place in ([*words, "--allow-version-mismatch"], ["--allow-version-mismatch", *words]):
        harness.run_command(*place)
        assert "version mismatch" not in harness.err


def test_what_asks_no_store_is_not_held_back(harness: ToolHarness) -> None:
    """S-50 of the catalogue."""
    cluster(harness, "v9.0.0")
    assert harness.run_command("version") == 0
    assert "Cluster Version: v9.0.0\n" in harness.out
    assert harness.run_command("validate", "-f", harness.write_pools(("a", "10.0.0.0/16"))) == 0
