"""Revisions as texts: etcd's revision number, and for a watch how many changes of that revision it has delivered.

All keys of one etcd transaction share a revision. A watch delivers their changes one after the other and may be
stopped in between, so the changes before the last one of a commit are ``812.1``, ``812.2``, … and the last is ``812``.
An ``@`` at the end means that the record has a legacy key, where it is updated and deleted.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

from netplug_core.errors import ConfigurationError
from netplug_core.records import Revision

__all__ = ["EtcdRevision", "find_etcd_revision", "get_etcd_revision"]

_TEXT: Final = re.compile(r"([1-9][0-9]{0,17})(?:\.([1-9][0-9]{0,3}))?(@?)", re.ASCII)


@frozen(order=True)
class EtcdRevision:
    """A revision of the store; ``delivered`` counts the changes of it that a watch has delivered, 0 for all.

    ``is_legacy`` belongs to the record that has the revision: its key is a legacy key.
    """

    number: int
    delivered: int = 0
    is_legacy: bool = False

    @property
    def delivered_up_to(self) -> int:
        """The newest revision of which all changes were delivered."""
        return self.number - 1 if self.delivered else self.number

    @property
    def revision(self) -> Revision:
        """The revision as a text."""
        text = f"{self.number}.{self.delivered}" if self.delivered else str(self.number)
        return Revision(f"{text}@" if self.is_legacy else text)


def find_etcd_revision(revision: Revision) -> EtcdRevision | None:
    """The revision that a text encodes; None if it is not a revision of etcd's."""
    found = _TEXT.fullmatch(revision)
    return None if found is None else EtcdRevision(int(found[1]), int(found[2] or 0), is_legacy=bool(found[3]))


def get_etcd_revision(revision: Revision, *, where: object) -> EtcdRevision:
    """The revision that a text encodes, which ``where`` has.

    Raises:
        ConfigurationError: the text is not a revision of etcd's.
    """
    position = find_etcd_revision(revision)
    if position is None:
        raise ConfigurationError(f"{where}: resourceVersion", revision, "etcd's revisions are numbers from 1")
    return position
