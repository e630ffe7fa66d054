"""The kind Profile: labels and rules that endpoints get by naming it, such as those of a namespace's pods.

A controller keeps a profile for each namespace and each service account of the orchestrator. If the datastore is
Kubernetes, these are views of its own objects. Users write the others.
"""

from __future__ import annotations

import enum
from typing import Final

from attrs import field, frozen

from netplug_core.decoding.codecs import TEXT_MAP
from netplug_core.decoding.tables import ListOf, json_object, member
from netplug_core.records import Key, Kind, Record, Revision
from netplug_core.resources.metadata import ENVELOPE, Labels, Metadata

__all__ = [
    "DEFAULT_ALLOW_PROFILE", "NAMESPACE_LABEL_PREFIX", "NAMESPACE_PROFILE_PREFIX", "PROFILE",
    "SERVICE_ACCOUNT_PROFILE_PREFIX", "Profile", "ProfileRule", "ProfileSpec", "RuleAction", "namespace_labels",
    "pod_profiles", "profile_key",
]  # fmt: skip

NAMESPACE_PROFILE_PREFIX: Final = "kns."
"""The prefix of the names of namespaces' profiles."""

NAMESPACE_LABEL_PREFIX: Final = "pcns."
"""What the labels of a namespace begin with in its profile."""

SERVICE_ACCOUNT_PROFILE_PREFIX: Final = "ksa."
"""The prefix of the names of service accounts' profiles."""


class RuleAction(enum.Enum):
    """What happens to a packet that a rule matches."""

    ALLOW = "Allow"
    DENY = "Deny"
    LOG = "Log"
    PASS = "Pass"  # noqa: S105  # no password


@json_object(keeps_unknown=True)
@frozen(kw_only=True)
class ProfileRule:
    """One rule. ``unknown_json`` is what it matches; if it is empty, every packet. This release programs no rules."""

    action: RuleAction = field(metadata=member("action", RuleAction))
    unknown_json: str = ""


@frozen(kw_only=True)
class ProfileSpec:
    """What an endpoint gets: labels for selectors, and rules for what no policy decides."""

    labels_to_apply: Labels = field(default=(), metadata=member("labelsToApply", TEXT_MAP))
    ingress: tuple[ProfileRule, ...] = field(default=(), metadata=member("ingress", ListOf(ProfileRule)))
    egress: tuple[ProfileRule, ...] = field(default=(), metadata=member("egress", ListOf(ProfileRule)))
    unknown_json: str = ""


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


_ALLOW_RULES = (ProfileRule(action=RuleAction.ALLOW),)
_DEFAULT_ALLOW = Profile(
    metadata=Metadata(name="projectnetplug-default-allow"), spec=ProfileSpec(ingress=_ALLOW_RULES, egress=_ALLOW_RULES)
)

DEFAULT_ALLOW_PROFILE: Final = Record(profile_key(_DEFAULT_ALLOW.metadata.name), _DEFAULT_ALLOW, Revision("1"))
"""The profile that allows everything. Every cluster has it; it is not stored and cannot be changed."""


def pod_profiles(namespace: str, service_account: str) -> tuple[str, ...]:
    """The names of a pod's profiles: that of its namespace, and that of its service account if it has one."""
    account = (f"{SERVICE_ACCOUNT_PROFILE_PREFIX}{namespace}.{service_account}",) if service_account else ()
    return (f"{NAMESPACE_PROFILE_PREFIX}{namespace}", *account)


def namespace_labels(profile: Profile) -> Labels:
    """The labels of the namespace that a profile is of, as pools select it."""
    return tuple(
        (name.removeprefix(NAMESPACE_LABEL_PREFIX), text)
        for name, text in profile.spec.labels_to_apply
        if name.startswith(NAMESPACE_LABEL_PREFIX)
    )
