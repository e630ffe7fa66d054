"""The resources of a simulated cluster: those of files, and nodes that are generated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import Factory, define, field

from netplug_cli.ctl.documents import read_manifests
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.simulation.options import NodeGroup
from netplug_core.addressing import Family
from netplug_core.errors import ConfigurationError
from netplug_core.resources.ipamconfiguration import IPAMConfiguration
from netplug_core.resources.ippool import AllowedUse, IPPool
from netplug_core.resources.ipreservation import IPReservation
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.node import Node
from netplug_core.resources.validation import validate_resource

__all__ = ["ScenarioResources", "generate_nodes", "read_scenario_files", "workload_families"]


@define
class ScenarioResources:
    """The resources in the files of a simulation."""

    pools: list[IPPool] = Factory(list)
    reservations: list[IPReservation] = Factory(list)
    nodes: list[Node] = Factory(list)
    configuration: IPAMConfiguration | None = field(default=None)

    def add(self, resource: Resource, *, source: str) -> None:
        """Add a resource.

        Raises:
            ConfigurationError: a simulation does not use its kind, or there is a configuration already.
        """
        match resource:
            case IPPool():
                self.pools.append(resource)
            case IPReservation():
                self.reservations.append(resource)
            case Node():
                self.nodes.append(resource)
            case IPAMConfiguration():
                if self.configuration is not None:
                    raise ConfigurationError(source, str(key_of(resource)), "there is one, and it was given already")
                self.configuration = resource
            case _:
                accepted = "a simulation takes IPPool, IPReservation, IPAMConfiguration and Node"
                raise ConfigurationError(source, str(key_of(resource)), accepted)


def read_scenario_files(files: Sequence[str]) -> ScenarioResources:
    """The resources of some files.

    Raises:
        InputError: some cannot be used; every problem is named.
    """
    resources = ScenarioResources()

    def accept(manifest: Manifest) -> None:
        validate_resource(manifest.resource)
        resources.add(manifest.resource, source=manifest.source)

    _, problems = read_manifests(files, accept)
    if problems:
        raise InputError("failed to simulate", None, "; ".join(problems))
    return resources


def generate_nodes(groups: Iterable[NodeGroup]) -> tuple[Node, ...]:
    """The nodes of some groups, numbered from ``node-001`` without gaps."""
    all_labels = [group.labels for group in groups for _ in range(group.count)]
    digits = len(str(len(all_labels)))
    return tuple(
        Node(metadata=Metadata(name=f"node-{number:0{digits}}", labels=of_node))
        for number, of_node in enumerate(all_labels, start=1)
    )


def workload_families(pools: Iterable[IPPool]) -> tuple[Family, ...]:
    """The families of which pods want an address: those of the enabled pools for workloads."""
    found = {
        pool.spec.prefix.family
        for pool in pools
        if AllowedUse.WORKLOAD in pool.spec.allowed_uses and not pool.spec.is_disabled
    }
    return tuple(sorted(found))
