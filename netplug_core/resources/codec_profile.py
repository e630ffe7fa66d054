"""Profile as a JSON-like mapping; see ``codec``, which is what the others call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netplug_core.decoding.reader import JSONDict, ObjectReader, as_enum, decode_unknown_json, omit_empty
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.profile import Profile, ProfileRule, ProfileSpec, RuleAction

if TYPE_CHECKING:
    from cattrs import BaseConverter

__all__ = ["read_profile", "write_profile"]

_ACTION = as_enum(RuleAction)


def read_profile(converter: BaseConverter, fields: ObjectReader) -> Profile:
    """The profile that an object stands for."""
    metadata = converter.structure(fields.optional_object("metadata"), Metadata)
    spec = fields.optional_object("spec")
    return Profile(
        metadata=metadata,
        spec=ProfileSpec(
            labels_to_apply=spec.string_map("labelsToApply"),
            # What a rule matches is the policy language's to say, which this release keeps as it is written.
            ingress=spec.object_list("ingress", lambda rule: _read_rule(rule.keeping_unknown_fields())),
            egress=spec.object_list("egress", lambda rule: _read_rule(rule.keeping_unknown_fields())),
            unknown_json=spec.finish_unknown_json(),
        ),
        unknown_json=fields.finish_unknown_json(),
    )


def write_profile(converter: BaseConverter, profile: Profile) -> JSONDict:
    """The object that stands for a profile."""
    spec = omit_empty(
        ingress=[_write_rule(rule) for rule in profile.spec.ingress],
        egress=[_write_rule(rule) for rule in profile.spec.egress],
        labelsToApply=dict(profile.spec.labels_to_apply),
    )
    spec = decode_unknown_json(profile.spec.unknown_json) | spec
    return decode_unknown_json(profile.unknown_json) | {
        "metadata": converter.unstructure(profile.metadata),
        "spec": spec,
    }


def _read_rule(fields: ObjectReader) -> ProfileRule:
    return ProfileRule(action=fields.required("action", _ACTION), unknown_json=fields.finish_unknown_json())


def _write_rule(rule: ProfileRule) -> JSONDict:
    return decode_unknown_json(rule.unknown_json) | {"action": rule.action.value}
