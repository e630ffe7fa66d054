"""What the composition roots share."""

from pathlib import Path

from netplug_cli.wiring import backends
from netplug_core.settings.model import DatastoreSettings


def test_the_tool_opens_what_its_settings_name(tmp_path: Path) -> None:
    path = str(tmp_path / "netplug.db")
    with backends.open_datastore(DatastoreSettings(type="sqlite", sqlite_path=path)) as store:
        assert store.description.location == path
