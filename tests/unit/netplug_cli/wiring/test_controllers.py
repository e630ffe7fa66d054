"""What the process of the controllers waits for before it is ready."""

from __future__ import annotations

import pytest

from netplug_cli.runtime.feed import OpenedOnce
from netplug_cli.wiring import controllers
from netplug_cli.wiring.backends import open_datastore
from netplug_core.reconcile.kubecontrollers import CopySource, default_configuration, find_running_controllers
from netplug_core.settings.model import DatastoreSettings
from tests.harness.controllers_scene import ControllersScene


@pytest.mark.parametrize("source, count", [(CopySource.KUBERNETES, 2), (CopySource.DATASTORE, 0)])
def test_a_process_is_not_ready_before_it_knows_what_to_copy(source: CopySource, count: int) -> None:
    """A second process finds the settings with the first records, long before pods are listed."""
    scene = ControllersScene(source=source)
    opened = OpenedOnce(open_datastore)
    sources, copies = (
        controllers._feed(name, (), DatastoreSettings(), opened)  # noqa: SLF001  # what it is made of
        for name in ("copied", "copies")
    )
    feeds = controllers._CopyFeeds(  # noqa: SLF001  # what it is made of
        sources=sources, copies=copies, acting=scene.configuration.acting, configuration=scene.configuration
    )
    assert feeds.wanted_feeds() == (sources, copies)
    spec = default_configuration(source).spec
    scene.configuration.running = find_running_controllers(spec, {}, source)
    assert len(feeds.wanted_feeds()) == count
