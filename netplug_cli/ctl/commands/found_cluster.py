"""What the commands of ``install`` find out of a cluster before they judge or change anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from netplug_core.errors import NetplugError, Unauthorized
from netplug_core.installation.cluster import ClusterInventory, FieldConflict
from netplug_core.installation.document import InstallationDocument
from netplug_core.installation.rules import CheckedInstallation, check_in_cluster, facts_of
from netplug_core.installation.settings import ClusterFacts
from netplug_core.records import List, Record
from netplug_core.resources.ippool import IPPOOL, IPPool

if TYPE_CHECKING:
    from netplug_cli.ctl.session import Session
    from netplug_core.installation.cluster import Cluster

__all__ = ["FoundCluster", "advice_on", "explained", "find_cluster", "read_pools"]

_FORBIDDEN = re.compile(r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"')


@frozen(kw_only=True)
class FoundCluster:
    """A cluster, and the facts that follow from it."""

    inventory: ClusterInventory
    facts: ClusterFacts
    revisions: Mapping[str, str]
    """The revision of each pool, by its name."""

    def check(self, document: InstallationDocument) -> CheckedInstallation:
        """Judge a document for this cluster."""
        return check_in_cluster(document, self.facts, self.inventory)


def find_cluster(session: Session, cluster: Cluster) -> FoundCluster:
    """What a cluster has. ``session`` is one for clusters.

    Raises:
        Unavailable: the server does not answer, or a right is missing.
    """
    inventory = cluster.read_inventory(deadline=session.deadline())
    pools = read_pools(session) if inventory.has_pools else ()
    return FoundCluster(
        inventory=inventory,
        facts=facts_of(inventory, tuple(record.value for record in pools)),
        revisions={record.key.name: record.revision for record in pools},
    )


def read_pools(session: Session) -> tuple[Record[IPPool], ...]:
    """The pools of the session's datastore; errors are those of ``Session.open_datastore``."""
    with session.open_datastore() as store:
        query = List(IPPOOL)
        return store.read([query], deadline=session.deadline()).list(query)


def advice_on(error: NetplugError) -> str:
    """What a person can do about an error of the API server, to follow its text; empty if that says it already."""
    if isinstance(error, FieldConflict):
        return " with --force-conflicts"
    found = _FORBIDDEN.search(str(error)) if isinstance(error, Unauthorized) else None
    if found is None:
        return ""
    resource = ".".join(filter(None, (found["resource"], found["group"])))
    return f"; grant the user the verb {found['verb']} on {resource}"


@contextmanager
def explained() -> Iterator[None]:
    """Adds what a person can do to the error of a right that is missing."""
    try:
        yield
    except Unauthorized as error:
        raise evolve(error, cause=f"{error.cause}{advice_on(error)}") from error
