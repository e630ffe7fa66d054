"""The options of ``simulate``, and the resources that it takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import click
from attrs import Factory, define, field, frozen

from netplug_cli.ctl.documents import read_manifests
from netplug_cli.ctl.errors import InputError
from netplug_cli.formatting import DURATION_UNITS
from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.names import prefix_to_name
from netplug_core.resources.ipamconfiguration import IPAMConfiguration
from netplug_core.resources.ippool import AllowedUse, IPPool, IPPoolSpec
from netplug_core.resources.ipreservation import IPReservation
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.metadata import Labels, Metadata
from netplug_core.resources.node import Node
from netplug_core.resources.validation import InvalidResource, validate_resource

__all__ = [
    "NodeGroup", "ScenarioResources", "generate_nodes", "parse_duration", "parse_labels", "parse_node_group",
    "parse_percentage", "parse_pool", "read_scenario_files", "workload_families",
]  # fmt: skip


# --- options ---------------------------------------------------------------------------------------------------------


_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_MAX_DIGITS = 6
_SLASHES_WITH_BLOCK_SIZE = 2


@frozen(kw_only=True)
class NodeGroup:
    """Generated nodes with the same labels."""

    count: int
    labels: Labels = ()


def parse_pool(text: str) -> IPPool:
    """A pool that is given as ``CIDR`` or ``CIDR/BLOCKSIZE``, named after its CIDR.

    Raises:
        click.BadParameter: it is not one that could be created.
    """
    cidr, _, block_size = text.rpartition("/") if text.count("/") == _SLASHES_WITH_BLOCK_SIZE else (text, "", "")
    try:
        prefix = Prefix.parse(cidr)
    except ValueError as error:
        raise click.BadParameter(f"{error}; expected CIDR[/BLOCKSIZE], such as 10.0.0.0/16/26") from None
    if block_size and not _is_number(block_size):
        raise click.BadParameter(f"{block_size!r} is not a block size; expected a number, as in 10.0.0.0/16/26")
    length = int(block_size) if block_size else prefix.family.default_block_length
    made = IPPool(
        metadata=Metadata(name=prefix_to_name(prefix).strip("-")), spec=IPPoolSpec(prefix=prefix, block_length=length)
    )
    try:
        validate_resource(made)
    except InvalidResource as error:
        raise click.BadParameter(str(error)) from None
    return made


def parse_node_group(text: str) -> NodeGroup:
    """Nodes that are given as ``COUNT`` or ``COUNT:LABEL=VALUE,...``.

    Raises:
        click.BadParameter: it is neither.
    """
    number, colon, rest = text.partition(":")
    if not _is_number(number) or int(number) < 1:
        raise click.BadParameter(f"{text!r}: expected COUNT[:LABEL=VALUE,...], such as 200 or 200:zone=a")
    return NodeGroup(count=int(number), labels=parse_labels(rest) if colon else ())


def parse_labels(text: str) -> Labels:
    """Labels that are given as ``LABEL=VALUE,...``.

    Raises:
        click.BadParameter: one of them is not, or is given twice.
    """
    found: dict[str, str] = {}
    for word in text.split(","):
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{word!r} is not a label; expected LABEL=VALUE,..., such as zone=a,rack=7")
        if key in found:
            raise click.BadParameter(f"the label {key!r} is given twice")
        found[key] = value
    return tuple(sorted(found.items()))


def parse_percentage(text: str) -> float:
    """A share that is given in percent, with or without the sign.

    Raises:
        click.BadParameter: it is no number from 0 to 100.
    """
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1
    if not 0 <= number <= 100:  # noqa: PLR2004 - percent
        raise click.BadParameter(f"{text!r} is not a percentage; expected 0 to 100, such as 10 or 2.5%")
    return number / 100


def parse_duration(text: str) -> int:
    """Seconds, more than none, that are given as ``90s``, ``5m``, ``1h30m`` or ``2d``.

    Raises:
        click.BadParameter: they are not.
    """
    match = _DURATION.fullmatch(text)
    numbers = match.groups(default="0") if match else ()
    seconds = sum(
        int(number[:_MAX_DIGITS]) * unit for number, unit in zip(numbers, DURATION_UNITS.values(), strict=False)
    )
    if not seconds or any(len(number) > _MAX_DIGITS for number in numbers):
        raise click.BadParameter(f"{text!r} is not a duration; expected one such as 90s, 5m, 1h30m or 2d")
    return seconds


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


# --- resources -------------------------------------------------------------------------------------------------------


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
