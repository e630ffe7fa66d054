"""The hook, where the optional packages are missing."""

import sys

import pytest

from netplug_backends.etcdv3.hookimpls import netplug_open_datastore
from netplug_core.errors import ConfigurationError
from netplug_core.netconf.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock


def test_without_its_packages_etcd_is_refused_and_the_text_says_what_brings_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in [name for name in sys.modules if name.startswith("netplug_backends.etcdv3.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ConfigurationError) as caught:
        netplug_open_datastore("etcdv3", DatastoreSettings(), ManualClock())
    assert str(caught.value) == (
        "datastore_type: 'etcdv3' is not accepted; "
        "the package grpc is not installed; netplug[etcd] brings what it needs"
    )
