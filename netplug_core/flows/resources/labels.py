"""Sets one label of a stored resource, or removes one."""

from __future__ import annotations

import enum
from functools import partial

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ConfigurationError, excerpt, quote
from netplug_core.flows.resources.edit import edit
from netplug_core.flows.resources.outcome import ResourceMissing
from netplug_core.flows.resources.read import find
from netplug_core.records import Key
from netplug_core.resources.kinds import Resource
from netplug_core.resources.patch import with_label, without_label

__all__ = ["LabelEffect", "LabelMissing", "LabelPresent", "Overwriting", "remove_label", "set_label"]


class LabelEffect(enum.Enum):
    """The effect on a label."""

    SET = "set"
    UPDATED = "updated"
    REMOVED = "removed"


class Overwriting(enum.Enum):
    """Whether the text of an existing label may be changed."""

    ALLOWED = "allowed"
    REFUSED = "refused"


class LabelPresent(ConfigurationError):
    """A label that exists with another text; ``value`` is its name."""

    def __str__(self) -> str:
        return f"key {excerpt(self.value)} is already present on {excerpt(self.where)}: {self.accepted}"


class LabelMissing(ConfigurationError):
    """A label to be removed that does not exist; ``value`` is its name."""

    def __str__(self) -> str:
        return f"cannot remove label {excerpt(self.value)} from {excerpt(self.where)}: {self.accepted}"


def set_label(
    store: Datastore, key: Key[Resource], label: str, text: str, *, overwriting: Overwriting, pace: Pace
) -> LabelEffect:
    """Set a label of a stored resource.

    Raises:
        LabelPresent: it has that label with another text, and overwriting is refused.
        InvalidResource, KindNotWritable, ResourceMissing, Unavailable: as for ``edit``.
    """
    before = _labels(store, key, pace)

    def change(resource: Resource) -> Resource:
        current = dict(resource.metadata.labels).get(label, text)
        if current != text and overwriting is Overwriting.REFUSED:
            raise LabelPresent(str(key), label, f"its text is {quote(current)}; --overwrite gives it another")
        return with_label(resource, label, text)

    edit(store, key, change, pace=pace)
    return LabelEffect.UPDATED if label in before else LabelEffect.SET


def remove_label(store: Datastore, key: Key[Resource], label: str, *, pace: Pace) -> LabelEffect:
    """Remove a label of a stored resource.

    Raises:
        LabelMissing: it has no such label.
        InvalidResource, KindNotWritable, ResourceMissing, Unavailable: as for ``edit``.
    """
    # It exists when this call begins. If it is gone later, it was removed, perhaps by an attempt whose reply was lost.
    before = _labels(store, key, pace)
    if label not in before:
        raise LabelMissing(str(key), label, f"it has {', '.join(before) or 'no label'}")
    edit(store, key, partial(without_label, label=label), pace=pace)
    return LabelEffect.REMOVED


def _labels(store: Datastore, key: Key[Resource], pace: Pace) -> dict[str, str]:
    (record,) = find(store, [key], deadline=pace.deadline)
    if record is None:
        raise ResourceMissing.of(key)
    return dict(record.value.metadata.labels)
