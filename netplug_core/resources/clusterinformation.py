"""The kind ClusterInformation: one object, ``default``, that says whether the datastore is ready."""

from __future__ import annotations

from attrs import frozen

from netplug_core.records import Key, Kind
from netplug_core.resources.metadata import Metadata

__all__ = ["CLUSTER_INFORMATION", "CLUSTER_INFORMATION_KEY", "ClusterInformation", "ClusterInformationSpec"]


@frozen(kw_only=True)
class ClusterInformationSpec:
    """The cluster's identity and its ready flag.

    ``is_datastore_ready`` is None when unset, which means ready; only an explicit false locks the datastore.
    """

    cluster_guid: str = ""
    cluster_type: str = ""
    version: str = ""
    is_datastore_ready: bool | None = None
    unknown_json: str = ""


@frozen(kw_only=True)
class ClusterInformation:
    """The cluster's one information object as it is stored. A missing object means ready too."""

    metadata: Metadata
    spec: ClusterInformationSpec = ClusterInformationSpec()
    unknown_json: str = ""

    @property
    def is_locked(self) -> bool:
        """Whether the datastore was explicitly declared not ready."""
        return self.spec.is_datastore_ready is False


CLUSTER_INFORMATION: Kind[ClusterInformation] = Kind("ClusterInformation", ("name",))
CLUSTER_INFORMATION_KEY: Key[ClusterInformation] = CLUSTER_INFORMATION.key("default")
