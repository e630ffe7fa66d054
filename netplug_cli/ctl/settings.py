"""Finds the tool's settings: in its configuration file, else in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from netplug_cli.ctl.documents import read_configuration
from netplug_core.settings.apiconfig import datastore_settings_from_environment, datastore_settings_from_file
from netplug_core.settings.model import DatastoreSettings

__all__ = ["read_settings"]


def read_settings(environ: Mapping[str, str], *, config_file: str, default_file: str) -> DatastoreSettings:
    """The settings of ``config_file`` if one is named, else of ``default_file`` if it exists, else of the environment.

    If a file is read, the environment is ignored.

    Raises:
        ConfigurationError: the file cannot be read or understood, or a value cannot be used; no secret is shown.
    """
    file = config_file or (default_file if default_file and os.path.lexists(default_file) else "")
    if not file:
        return datastore_settings_from_environment(environ)
    return datastore_settings_from_file(read_configuration(file), source=file)
