"""A resource as a user wrote it: the value, and what else the document said.

``netplug_cli.ctl.documents`` reads the documents, and ``flows.resources`` acts on the manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import evolve, field, frozen

from netplug_core.decoding.tables import DocumentOrigin
from netplug_core.resources.codec import from_mapping, read_resource_version
from netplug_core.resources.kinds import Resource, ResourceScope, kind_of

__all__ = ["Manifest", "manifest_from_mapping"]


@frozen(kw_only=True)
class Manifest:
    """A resource that a user wants.

    ``revision`` is the resource version that the document names, empty for none; ``source`` names the document, and
    ``find_place`` the place of a member in it, by its path, such as ``spec.cidr``.
    """

    resource: Resource
    revision: str = ""
    source: str = ""
    find_place: Callable[[str], str] | None = field(default=None, eq=False, repr=False)

    def within(self, namespace: str) -> Manifest:
        """The manifest in a namespace, if its kind has namespaces and the document names none."""
        metadata = self.resource.metadata
        if metadata.namespace or kind_of(self.resource).scope is ResourceScope.CLUSTER:
            return self
        return evolve(self, resource=evolve(self.resource, metadata=evolve(metadata, namespace=namespace)))

    def place_of(self, path: str) -> str:
        """Where a member stands, as an error shows it: the name of the document if more is not known."""
        return self.find_place(path) if self.find_place else self.source


def manifest_from_mapping(mapping: Mapping[str, object], *, source: str) -> Manifest:
    """The manifest that a user wrote as one JSON object.

    Raises:
        ConfigurationError: it is no resource; see ``codec.from_mapping``.
    """
    resource = from_mapping(mapping, origin=DocumentOrigin.USER, source=source)
    return Manifest(resource=resource, revision=read_resource_version(mapping, source=source), source=source)
