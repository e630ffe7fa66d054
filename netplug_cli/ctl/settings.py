"""Where the tool's settings are: in a file of its own, else in the environment. ``netconf.tool`` understands them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from netplug_core.settings.apiconfig import datastore_settings_from_environment, datastore_settings_from_file
from netplug_core.settings.model import DatastoreSettings

__all__ = ["read_settings"]


def read_settings(environ: Mapping[str, str], *, config_file: str, default_file: str) -> DatastoreSettings:
    """The settings of the file that was ``named``, else of the ``usual`` one if it is there, else of the environment.

    Where a file is read the environment is ignored.

    Raises:
        ConfigurationError: the file cannot be read or understood, or a value cannot be used; no secret is shown.
    """
    file = config_file or (default_file if default_file and os.path.lexists(default_file) else "")
    if not file:
        return datastore_settings_from_environment(environ)
    from netplug_cli.ctl.documents import read_configuration

    return datastore_settings_from_file(read_configuration(file), source=file)
