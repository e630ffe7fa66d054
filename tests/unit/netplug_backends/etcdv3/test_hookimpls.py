"""The hook, if optional packages are missing."""

import sys

import pytest

from netplug_backends.etcdv3.hookimpls import netplug_open_datastore
from netplug_core.errors import ConfigurationError
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock


def text_without(package: str, settings: DatastoreSettings, monkeypatch: pytest.MonkeyPatch) -> str:
    """The error of opening the datastore without a package."""
    for module in [name for name in sys.modules if name.startswith(("netplug_backends.etcdv3.", f"{package}."))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError) as caught:
        netplug_open_datastore("etcdv3", settings, ManualClock())
    return str(caught.value)


def test_without_its_packages_etcd_is_refused_and_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert text_without("grpc", DatastoreSettings(), monkeypatch) == (
        "datastore_type: 'etcdv3' is not accepted; "
        "the package grpcio is not installed; netplug[etcd] brings what it needs"
    )


def test_a_module_is_named_as_the_package_that_one_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("netplug_backends.etcdv3.messages", raising=False)
    text = text_without("google", DatastoreSettings(), monkeypatch)
    assert "the package protobuf is not installed; netplug[etcd] brings" in text


def test_without_dnspython_a_domain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DatastoreSettings(etcd_endpoints=(), etcd_discovery_srv="etcd.local")
    assert text_without("dns", settings, monkeypatch) == (
        "datastore_type: 'etcdv3' is not accepted; "
        "the package dnspython is not installed; netplug[etcd] brings what it needs"
    )
