"""Revisions as texts, valid and invalid ones."""

import pytest

from netplug_backends.etcdv3.datastore import EtcdRevision, find_etcd_revision, get_etcd_revision
from netplug_core.errors import ConfigurationError
from netplug_core.records import Revision


@pytest.mark.parametrize(
    "text,position,whole",
    [
        ("1", EtcdRevision(1), 1),
        ("812", EtcdRevision(812), 812),
        ("812.1", EtcdRevision(812, 1), 811),
        ("812@", EtcdRevision(812, is_legacy=True), 812),
        ("812.1@", EtcdRevision(812, 1, is_legacy=True), 811),
        ("9" * 18, EtcdRevision(10**18 - 1), 10**18 - 1),
    ],
)
def test_a_text_encodes_a_revision(text: str, position: EtcdRevision, whole: int) -> None:
    revision = Revision(text)
    assert find_etcd_revision(revision) == position == get_etcd_revision(revision, where="it")
    assert (position.revision, position.delivered_up_to) == (revision, whole)


@pytest.mark.parametrize(
    "text", ["", "abc", "0", "-1", "1.0", "1.", " 1", "٣", "1e3", "@", "1@@", "@1", "1.@", "9" * 19]
)
def test_s4_any_other_text_is_refused_before_a_call(text: str) -> None:
    assert find_etcd_revision(Revision(text)) is None
    with pytest.raises(ConfigurationError) as caught:
        get_etcd_revision(Revision(text), where="IPPool(main)")
    assert str(caught.value) == (
        f"IPPool(main): resourceVersion: {text!r} is not accepted; etcd's revisions are numbers from 1"
    )
