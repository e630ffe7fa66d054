"""The API group of netplug's resources in a cluster. A cluster keeps the one that it began with.

Source: spec 9.3.
"""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.errors import ConfigurationError
from netplug_core.names import API_VERSION

__all__ = ["ClusterMode", "ModeEvidence", "ModeRefused", "decide_mode"]


class ClusterMode(enum.Enum):
    """The group: ``crd.projectnetplug.org/v1``, or ``projectnetplug.org/v3``; the value is what a status records.

    The store of Kubernetes has the groups themselves, under the same names, in its ``CrdMode``.
    """

    V1 = "v1"
    V3 = "v3"

    @property
    def api_group(self) -> str:
        """The group as the settings of the plugin name it; that of v1 is the empty text."""
        return API_VERSION if self is ClusterMode.V3 else ""


@frozen(kw_only=True)
class ModeEvidence:
    """What is known: what the administrator asks for, the groups that are served, and what the status has recorded."""

    asked: ClusterMode | None = None
    served: frozenset[ClusterMode] = frozenset()
    recorded: ClusterMode | None = None

    @property
    def present(self) -> ClusterMode | None:
        """The mode of the definitions that are there. With both it is v1: v3 is then a server in front of it."""
        return next((mode for mode in ClusterMode if mode in self.served), None)


class ModeRefused(ConfigurationError):
    """The mode would have to change; ``value`` is the mode that was found or asked for."""

    def __str__(self) -> str:
        return f"{self.where}: {self.value} is not accepted; {self.accepted}"


def decide_mode(evidence: ModeEvidence) -> ClusterMode:
    """The mode of a cluster. On a new one it is v1, unless v3 is asked for.

    Raises:
        ModeRefused: the cluster has another one.
    """
    recorded, present, asked = evidence.recorded, evidence.present, evidence.asked
    if recorded is not None and present is not None and present is not recorded:
        accepted = (
            f"this installation was made with {recorded.value}, and its data is there; "
            "restore those definitions, and delete the others"
        )
        raise ModeRefused("definitions of the cluster", present.value, accepted)
    known = recorded or present
    if asked is not None and known is not None and asked is not known:
        accepted = f"the cluster has {known.value}, with its data, and is never switched; unset the variable"
        raise ModeRefused("NETPLUG_API_GROUP", asked.value, accepted)
    return known or asked or ClusterMode.V1
