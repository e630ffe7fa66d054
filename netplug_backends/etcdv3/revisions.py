"""Revisions as texts: a number of etcd's, and for a watch how much of a commit it has told.

All keys of one etcd transaction share a revision, but a watch tells of them one after the other and may be left in
between. So the change before the last of a commit is ``812.1``, ``812.2``, … and the last is ``812``. An ``@`` behind
says that the record stands at a key of old, where it is to be changed and removed.
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
    """A revision of the store; ``told`` counts the changes of it that were told, 0 for all of them.

    ``is_old`` is not about the store but about the record that has it: it stands at a key of old.
    """

    number: int
    delivered: int = 0
    is_legacy: bool = False

    @property
    def delivered_up_to(self) -> int:
        """The newest revision of which everything was told."""
        return self.number - 1 if self.delivered else self.number

    @property
    def revision(self) -> Revision:
        """The text that stands for it."""
        text = f"{self.number}.{self.delivered}" if self.delivered else str(self.number)
        return Revision(f"{text}@" if self.is_legacy else text)


def find_etcd_revision(revision: Revision) -> EtcdRevision | None:
    """What a text stands for; None when it is none of etcd's."""
    found = _TEXT.fullmatch(revision)
    return None if found is None else EtcdRevision(int(found[1]), int(found[2] or 0), is_legacy=bool(found[3]))


def get_etcd_revision(revision: Revision, *, where: object) -> EtcdRevision:
    """What a text stands for that ``where`` carries.

    Raises:
        ConfigurationError: it is none of etcd's.
    """
    position = find_etcd_revision(revision)
    if position is None:
        raise ConfigurationError(f"{where}: resourceVersion", revision, "etcd's revisions are numbers from 1")
    return position
