"""The identity of the cluster, and which release it runs: what ClusterInformation has to say.

Each node process records its release in its Node. The cluster runs the lowest one that is recorded, and never goes
back to a former one, so that at the end of an upgrade no client of the former release may write. Agents and tools
complete what is stored with ``flows.resources.cluster``, and the controllers have a controller for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from attrs import evolve, frozen

from netplug_core.resources.clusterinformation import ClusterInformationSpec

__all__ = ["KUBERNETES_TYPE", "Release", "add_cluster_types", "complete_information", "parse_types", "raised_release"]

KUBERNETES_TYPE = "kdd"
"""The part of the type of a cluster whose datastore is the orchestrator's own."""

# Bounded, since a number of thousands of digits cannot be converted.
_RELEASE = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?:\.\d+)*(?:-(?P<before>[^+\n]*))?(?:\+.*)?", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)


@frozen(order=True)
class Release:
    """A release, in the order of semantic versioning: one with a suffix, such as ``-rc1``, comes before the release."""

    numbers: tuple[int, int, int]
    is_final: bool = True
    suffix: tuple[tuple[bool, int, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Release | None:
        """The release that a text such as ``v3.33.0-rc1`` names; None for anything else."""
        found = _RELEASE.fullmatch(text)
        if found is None:
            return None
        numbers = (int(found[1]), int(found[2]), int(found[3] or 0))
        before = found["before"]
        return cls(numbers, is_final=not before, suffix=tuple(map(_identifier, before.split("."))) if before else ())


def _identifier(text: str) -> tuple[bool, int, str]:
    """A part of a suffix; numbers are compared as numbers, and come before words."""
    return (False, int(text), "") if _NUMBER.fullmatch(text) else (True, 0, text)


def raised_release(known: str, recorded: Iterable[str]) -> str:
    """The release that the cluster runs: the lowest that nodes have recorded, if that is later than the known one.

    Texts that name no release do not count: neither a node without one, nor one that is known, which is replaced.
    """
    releases = [(release, text) for text in recorded if (release := Release.parse(text)) is not None]
    if not releases:
        return known
    lowest, text = min(releases)
    current = Release.parse(known)
    return text if current is None or current < lowest else known


def parse_types(text: str) -> tuple[str, ...]:
    """The parts of a type such as ``k8s,bgp``."""
    return tuple(dict.fromkeys(part for part in map(str.strip, text.split(",")) if part))


def add_cluster_types(known: str, types: Iterable[str]) -> str:
    """A type with these parts too. What is there stays, in its order; ``kdd`` is the last one if it was, or is new."""
    parts = parse_types(known)
    missing = [part for part in dict.fromkeys(types) if part not in parts]
    if not missing:
        return known
    kept = parts[:-1] if parts[-1:] == (KUBERNETES_TYPE,) else parts
    new = [part for part in missing if part != KUBERNETES_TYPE]
    return ",".join((*kept, *new, *parts[len(kept) :], *(part for part in missing if part == KUBERNETES_TYPE)))


def complete_information(
    spec: ClusterInformationSpec, *, guid: str, types: Iterable[str] = (), recorded: Iterable[str] = ()
) -> ClusterInformationSpec:
    """What is stored, with what it lacks: an identity, parts of the type, the release, the ready flag.

    What people have set stays: an identity, and a flag of false, which locks the cluster.
    """
    return evolve(
        spec,
        cluster_guid=spec.cluster_guid or guid,
        cluster_type=add_cluster_types(spec.cluster_type, types),
        version=raised_release(spec.version, recorded),
        is_datastore_ready=spec.is_datastore_ready is not False,
    )
