"""The kind Profile: labels and rules that endpoints get by naming it, such as those of a namespace's pods.

A controller keeps a profile for each namespace and each service account of the orchestrator. If the datastore is
Kubernetes, these are views of its own objects. Users write the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import field, frozen

from netplug_core.decoding.codecs import TEXT_MAP
from netplug_core.decoding.tables import Keeps, ListOf, find_unknown, json_object, member
from netplug_core.names import RESOURCE_DOMAIN, label_value
from netplug_core.records import Key, Kind, Record, Revision
from netplug_core.resources.fields import ENVELOPE, FieldError, Labels, Metadata, find_label_problems
from netplug_core.resources.networkpolicy import Direction
from netplug_core.resources.policyrule import (
    MAX_RULES,
    EntityRule,
    PolicyRule,
    RuleAction,
    enforced_rules,
    validate_rules,
)

__all__ = [
    "DEFAULT_ALLOW_PROFILE", "NAMESPACE_LABEL_PREFIX", "NAMESPACE_PROFILE_PREFIX", "PROFILE",
    "SERVICE_ACCOUNT_LABEL_PREFIX", "SERVICE_ACCOUNT_PROFILE_PREFIX", "Profile", "ProfileSpec", "account_spec",
    "namespace_labels", "namespace_spec", "network_spec", "pod_profiles", "profile_key", "validate_profile",
]  # fmt: skip

NAMESPACE_PROFILE_PREFIX: Final = "kns."
"""The prefix of the names of namespaces' profiles."""

NAMESPACE_LABEL_PREFIX: Final = "pcns."
"""What the labels of a namespace begin with in its profile."""

SERVICE_ACCOUNT_PROFILE_PREFIX: Final = "ksa."
"""The prefix of the names of service accounts' profiles."""

SERVICE_ACCOUNT_LABEL_PREFIX: Final = "pcsa."
"""What the labels of a service account begin with in its profile."""


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class ProfileSpec:
    """What an endpoint gets: labels for selectors, and rules for what no policy decides."""

    # fmt: off
    labels_to_apply: Labels = field(default=(), metadata=member("labelsToApply", TEXT_MAP,
        "labels that selectors find the endpoints by, beside their own, which win"))
    ingress: tuple[PolicyRule, ...] = field(default=(), metadata=member("ingress", ListOf(PolicyRule),
        "rules for packets to the endpoints, in order", limits={"maxItems": MAX_RULES}))
    egress: tuple[PolicyRule, ...] = field(default=(), metadata=member("egress", ListOf(PolicyRule),
        "rules for packets from the endpoints, in order", limits={"maxItems": MAX_RULES}))
    # fmt: on
    unknown_json: str = ""

    def rules(self, direction: Direction) -> tuple[tuple[int, PolicyRule], ...]:
        """The rules of a direction that count, each with its position; they never allow more than what is stored."""
        rules = self.ingress if direction is Direction.INGRESS else self.egress
        return enforced_rules(rules, is_readable=direction.member not in find_unknown(self))


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class Profile:
    """A profile as it is stored."""

    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: ProfileSpec = field(default=ProfileSpec(), metadata=member("spec", ProfileSpec, is_always_written=True))
    unknown_json: str = ""


PROFILE: Kind[Profile] = Kind("Profile", ("name",))


def profile_key(name: str) -> Key[Profile]:
    """The key of the profile with that name."""
    return PROFILE.key(name)


_ALLOW_RULES = (PolicyRule(action=RuleAction.ALLOW),)
_DEFAULT_ALLOW = Profile(
    metadata=Metadata(name="projectnetplug-default-allow"), spec=ProfileSpec(ingress=_ALLOW_RULES, egress=_ALLOW_RULES)
)

DEFAULT_ALLOW_PROFILE: Final = Record(profile_key(_DEFAULT_ALLOW.metadata.name), _DEFAULT_ALLOW, Revision("1"))
"""The profile that allows everything. Every cluster has it; it is not stored and cannot be changed."""


def pod_profiles(namespace: str, service_account: str) -> tuple[str, ...]:
    """The names of a pod's profiles: that of its namespace, and that of its service account if it has one."""
    account = (f"{SERVICE_ACCOUNT_PROFILE_PREFIX}{namespace}.{service_account}",) if service_account else ()
    return (f"{NAMESPACE_PROFILE_PREFIX}{namespace}", *account)


def namespace_spec(name: str, labels: Labels) -> ProfileSpec:
    """What the pods of a namespace get: its labels, and leave for all traffic of pods that no policy selects."""
    applied = _applied(NAMESPACE_LABEL_PREFIX, name, labels)
    return ProfileSpec(labels_to_apply=applied, ingress=_ALLOW_RULES, egress=_ALLOW_RULES)


def network_spec(name: str, *, is_orchestrated: bool) -> ProfileSpec:
    """What the workloads of a network get that no namespace has a profile for: a label, and leave to send anywhere.

    They may receive from each other; those of an orchestrator, from all.
    """
    own = EntityRule(selector=f"has({name})")
    ingress = _ALLOW_RULES if is_orchestrated else (PolicyRule(action=RuleAction.ALLOW, source=own),)
    return ProfileSpec(labels_to_apply=((name, ""),), ingress=ingress, egress=_ALLOW_RULES)


def account_spec(name: str, labels: Labels) -> ProfileSpec:
    """What the pods of a service account get: its labels alone."""
    return ProfileSpec(labels_to_apply=_applied(SERVICE_ACCOUNT_LABEL_PREFIX, name, labels))


def _applied(prefix: str, name: str, labels: Labels) -> Labels:
    named = {**dict(labels), f"{RESOURCE_DOMAIN}/name": label_value(name)}
    return tuple(sorted((f"{prefix}{label}", text) for label, text in named.items()))


def namespace_labels(profile: Profile) -> Labels:
    """The labels of the namespace that a profile is of, as pools select it."""
    return tuple(
        (name.removeprefix(NAMESPACE_LABEL_PREFIX), text)
        for name, text in profile.spec.labels_to_apply
        if name.startswith(NAMESPACE_LABEL_PREFIX)
    )


def validate_profile(profile: Profile) -> Iterator[FieldError]:
    """What is wrong with the labels and rules of a profile."""
    yield from find_label_problems("spec.labelsToApply", profile.spec.labels_to_apply)
    yield from validate_rules("spec.ingress", profile.spec.ingress)
    yield from validate_rules("spec.egress", profile.spec.egress)
