"""A resource as a person handed it in: the value, and what else the document said.

``netplug_cli.ctl.documents`` finds the mappings, ``flows.resources`` acts on what is made of them here. It is apart
from ``codec`` because an ADD never meets one.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from netplug_core.decoding.reader import ObjectReader, as_string
from netplug_core.resources.codec import DocumentOrigin, from_mapping
from netplug_core.resources.kinds import Resource

__all__ = ["Manifest", "manifest_from_mapping"]


@frozen(kw_only=True)
class Manifest:
    """A resource that somebody wants.

    ``revision`` is the resource version that the document names, empty for none; ``source`` says where it stood.
    """

    resource: Resource
    revision: str = ""
    source: str = ""


def manifest_from_mapping(mapping: Mapping[str, object], *, source: str) -> Manifest:
    """What a person handed in as one JSON object.

    Raises:
        ConfigurationError: it stands for no resource; see ``codec.from_mapping``.
    """
    resource = from_mapping(mapping, origin=DocumentOrigin.USER, source=source)
    metadata = ObjectReader(mapping, origin=DocumentOrigin.USER, source=source).optional_object("metadata")
    return Manifest(resource=resource, revision=metadata.optional("resourceVersion", as_string, ""), source=source)
