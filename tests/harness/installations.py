"""Installations for tests: a document of a few fields, read, judged and resolved."""

from __future__ import annotations

from collections.abc import Mapping

from netplug_core.addressing import Prefix
from netplug_core.installation.document import InstallationDocument, read_installation
from netplug_core.installation.rules import CheckedInstallation, check
from netplug_core.installation.settings import ClusterFacts, ResolvedInstallation
from netplug_core.resources.installation import INSTALLATION_API_VERSION
from netplug_core.resources.ippool import IPPool

__all__ = ["judge", "make_pool", "manifest", "network", "read", "resolved"]


def manifest(spec: object = None, *, name: str = "default", **members: object) -> dict[str, object]:
    """The document of an Installation, as JSON."""
    head: dict[str, object] = {"apiVersion": INSTALLATION_API_VERSION, "kind": "Installation"}
    return {**head, "metadata": {"name": name}, "spec": {} if spec is None else spec, **members}


def network(**members: object) -> dict[str, object]:
    """A spec with settings of the network."""
    return {"netplugNetwork": members}


def read(spec: Mapping[str, object] | None = None, *, name: str = "default", **members: object) -> InstallationDocument:
    """The Installation with a spec."""
    return read_installation(manifest(spec, name=name, **members))


def judge(spec: Mapping[str, object] | None = None, **facts: object) -> CheckedInstallation:
    """The Installation with a spec, judged for a cluster with some facts."""
    return check(read(spec), ClusterFacts(**facts))  # type: ignore[arg-type]


def resolved(spec: Mapping[str, object] | None = None, **facts: object) -> ResolvedInstallation:
    """What an Installation without problems becomes."""
    checked = judge(spec, **facts)
    assert checked.problems == ()
    assert checked.resolved is not None
    return checked.resolved


def make_pool(cidr: str, *, name: str = "existing") -> IPPool:
    """A pool of the cluster."""
    return IPPool.for_prefix(Prefix.parse(cidr), name=name)
