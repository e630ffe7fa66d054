"""Which settings count: the file that is named, the usual one, or the environment."""

from pathlib import Path

import pytest

from netplug_cli.ctl.session import read_settings
from netplug_core.errors import ConfigurationError
from netplug_core.settings.model import DatastoreSettings

ENVIRON = {"ETCD_USERNAME": "environment"}


def configuration(path: Path, user: str) -> str:
    path.write_text(f"kind: NetplugAPIConfig\napiVersion: projectnetplug.org/v3\nspec: {{etcdUsername: {user}}}\n")
    return str(path)


def test_without_a_file_the_environment_counts(tmp_path: Path) -> None:
    for usual in ("", str(tmp_path / "none")):
        assert read_settings(ENVIRON, config_file="", default_file=usual) == DatastoreSettings(
            etcd_username="environment"
        )


def test_the_usual_file_makes_the_environment_count_for_nothing(tmp_path: Path) -> None:
    usual = configuration(tmp_path / "usual", "usual")
    environ = {**ENVIRON, "ETCD_PASSWORD": "x"}
    assert read_settings(environ, config_file="", default_file=usual) == DatastoreSettings(etcd_username="usual")


def test_the_file_that_is_named_goes_before_the_usual_one(tmp_path: Path) -> None:
    usual, named = configuration(tmp_path / "usual", "usual"), configuration(tmp_path / "named", "named")
    assert read_settings(ENVIRON, config_file=named, default_file=usual).etcd_username == "named"


@pytest.mark.parametrize("which", ["config_file", "default_file"])
def test_a_file_that_cannot_be_read_is_an_error_and_not_the_environment(tmp_path: Path, which: str) -> None:
    """One that leads nowhere is there all the same; who named one wants that one."""
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match=f"^{path}: No such file or directory$"):
        read_settings(ENVIRON, **{"config_file": "", "default_file": "", which: str(path)})
