"""Profile as a JSON-like mapping; see ``codec``, which is what the others call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netplug_core.resources.fields import Fields, Json, as_choice, carried_members, present
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.profile import Action, Profile, ProfileSpec, Rule

if TYPE_CHECKING:
    from cattrs import BaseConverter

__all__ = ["read_profile", "write_profile"]

_ACTION = as_choice(Action)


def read_profile(converter: BaseConverter, fields: Fields) -> Profile:
    """The profile that an object stands for."""
    metadata = converter.structure(fields.take_object("metadata"), Metadata)
    spec = fields.take_object("spec")
    return Profile(
        metadata=metadata,
        spec=ProfileSpec(
            labels_to_apply=spec.take_texts("labelsToApply"),
            # What a rule matches is the policy language's to say, which this release keeps as it is written.
            ingress=spec.take_objects("ingress", lambda rule: _read_rule(rule.lenient())),
            egress=spec.take_objects("egress", lambda rule: _read_rule(rule.lenient())),
            carried=spec.finish(),
        ),
        carried=fields.finish(),
    )


def write_profile(converter: BaseConverter, profile: Profile) -> Json:
    """The object that stands for a profile."""
    spec = present(
        ingress=[_write_rule(rule) for rule in profile.spec.ingress],
        egress=[_write_rule(rule) for rule in profile.spec.egress],
        labelsToApply=dict(profile.spec.labels_to_apply),
    )
    spec = carried_members(profile.spec.carried) | spec
    return carried_members(profile.carried) | {"metadata": converter.unstructure(profile.metadata), "spec": spec}


def _read_rule(fields: Fields) -> Rule:
    return Rule(action=fields.need("action", _ACTION), carried=fields.finish())


def _write_rule(rule: Rule) -> Json:
    return carried_members(rule.carried) | {"action": rule.action.value}
