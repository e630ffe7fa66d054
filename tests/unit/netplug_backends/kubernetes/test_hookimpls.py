"""Opening the datastore: nothing is sent, and an unknown API group is refused."""

import pytest

from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.hookimpls import netplug_open_datastore
from netplug_core.datastore.protocol import Atomicity
from netplug_core.errors import ConfigurationError
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess
from netplug_core.testing.clock import ManualClock

ACCESS = KubernetesAccess(api_root="https://nowhere.example")


def test_opening_sends_nothing_and_has_a_location() -> None:
    settings = DatastoreSettings(type="kubernetes", kubernetes=ACCESS, api_group="projectnetplug.org")
    opened = netplug_open_datastore(name="kubernetes", settings=settings, clock=ManualClock())
    assert opened is not None
    with opened as store:
        assert store.description.atomicity is Atomicity.ORDERED
        assert (store.description.name, store.description.location) == ("kubernetes", "https://nowhere.example")


def test_the_annotation_prefix_is_passed_on() -> None:
    settings = DatastoreSettings(type="kubernetes", kubernetes=ACCESS, annotation_prefix="example.org")
    opened = netplug_open_datastore(name="kubernetes", settings=settings, clock=ManualClock())
    assert opened is not None
    with opened as store:
        assert isinstance(store, KubernetesDatastore)
        assert store.annotation_prefix == "example.org"


def test_s17_an_unknown_api_group_is_refused_at_once() -> None:
    settings = DatastoreSettings(type="kubernetes", kubernetes=ACCESS, api_group="example.org")
    with pytest.raises(ConfigurationError, match="netplug_api_group"):
        netplug_open_datastore(name="kubernetes", settings=settings, clock=ManualClock())
