"""What is put onto a host, in which order, and what is taken off it again.

The order is what keeps a node from being ready without a working plugin: a runtime takes a node for ready as soon as
a network configuration is there, so the configuration comes last, and goes first. ``netplug_backends.host.placing``
does each step whole or not at all, and not again if it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from attrs import field, frozen

from netplug_core.errors import ConfigurationError
from netplug_core.installation.conflist_template import Conflist, is_ours
from netplug_core.installation.installer_settings import CERTIFICATES, InstallerSettings
from netplug_core.installation.kubeconfig import FILE_NAME

__all__ = [
    "BinFolder", "ConfFolder", "CopyProgram", "InstallPrograms", "NoWritableFolder", "RemoveFile", "RenewKubeconfig",
    "Step", "WriteFile", "find_warnings", "helper_names", "plan_install", "plan_removal", "plan_tls", "usable_folders",
]  # fmt: skip

OWN_PROGRAMS: Final = ("netplug", "netplug-ipam")
_NO_HELPERS: Final = frozenset({*OWN_PROGRAMS, *(f"{name}-standalone" for name in OWN_PROGRAMS), "install"})
_SECRET_MODE: Final = 0o600
_CONF_ENDINGS: Final = (".conflist", ".conf", ".json")


@frozen
class NoWritableFolder(ConfigurationError):
    """None of the folders for plugins can be written."""


@frozen(kw_only=True)
class BinFolder:
    """A folder for plugins as it was found: whether it can be written, and the names in it."""

    path: str
    is_writable: bool
    names: frozenset[str]

    @property
    def has_own_programs(self) -> bool:
        """Whether both of ours are there."""
        return self.names.issuperset(OWN_PROGRAMS)


@frozen(kw_only=True)
class ConfFolder:
    """The folder of network configurations as it was found: the texts of the configurations by name."""

    path: str
    texts: Mapping[str, str] = field(repr=False)


@frozen
class InstallPrograms:
    """The two executables of ours, and what they execute, come into a folder for plugins."""

    bin_dir: str


@frozen
class CopyProgram:
    """A helper plugin is copied; ``keeps``: one that is there stays as it is."""

    source: str
    path: str
    keeps: bool


@frozen(kw_only=True)
class WriteFile:
    """A file gets a content and a mode."""

    path: str
    content: bytes = field(repr=False)
    mode: int


@frozen
class RenewKubeconfig:
    """The plugin's kubeconfig gets a new token; nothing is done outside a pod."""


@frozen
class RemoveFile:
    """A file is removed. It is missed by nothing, so it may be gone already."""

    path: str


Step: TypeAlias = InstallPrograms | CopyProgram | WriteFile | RenewKubeconfig | RemoveFile


def usable_folders(folders: Iterable[BinFolder], settings: InstallerSettings) -> tuple[BinFolder, ...]:
    """The folders into which plugins are installed; none if existing programs are to be kept and are there.

    Raises:
        NoWritableFolder: none can be written.
    """
    found = tuple(folders)
    writable = tuple(folder for folder in found if folder.is_writable)
    if writable or (not settings.updates_programs and any(folder.has_own_programs for folder in found)):
        return writable
    raise NoWritableFolder(
        "folders for plugins",
        ", ".join(folder.path for folder in found),
        "one that exists and can be written is expected; mount the runtime's plugin folder there",
    )


def helper_names(names: Iterable[str], settings: InstallerSettings) -> tuple[str, ...]:
    """Which of the files beside the image's plugins are helper plugins to be copied, sorted."""
    return tuple(sorted(frozenset(names) - _NO_HELPERS - settings.skipped_programs))


def plan_tls(folder: str, certificates: Mapping[str, bytes]) -> tuple[Step, ...]:
    """The steps that bring the certificates that are mounted into the folder of network configurations."""
    return tuple(
        WriteFile(path=f"{folder}/netplug-tls/{name}", content=certificates[name], mode=_SECRET_MODE)
        for name in CERTIFICATES
        if name in certificates
    )


def plan_install(
    settings: InstallerSettings,
    conflist: Conflist,
    *,
    bin_folders: Iterable[BinFolder],
    conf: ConfFolder,
    helpers: Mapping[str, str],
    certificates: Mapping[str, bytes],
) -> tuple[Step, ...]:
    """Every step of an installation, in order. ``helpers`` are the paths of the helper plugins by name.

    Raises:
        ConfigurationError: a configuration of others has the name of ours.
    """
    there = conf.texts.get(settings.conf_name)
    if there is not None and not is_ours(there) and there.strip():
        raise ConfigurationError(
            f"{conf.path}/{settings.conf_name}",
            "…",
            "it has no plugin of netplug, so it is not replaced; set CNI_CONF_NAME to another name, or remove it",
        )
    steps: list[Step] = []
    for folder in bin_folders:
        if settings.updates_programs or not folder.has_own_programs:
            steps.append(InstallPrograms(folder.path))
        steps += [
            CopyProgram(source, f"{folder.path}/{name}", not settings.updates_programs)
            for name, source in sorted(helpers.items())
        ]
    steps += plan_tls(conf.path, certificates)
    steps.append(RenewKubeconfig())
    text = conflist.text.encode()
    steps.append(WriteFile(path=f"{conf.path}/{settings.conf_name}", content=text, mode=settings.conf_mode))
    return (*steps, *_old_files(settings, conf, certificates))


def _old_files(
    settings: InstallerSettings, conf: ConfFolder, certificates: Mapping[str, bytes]
) -> tuple[RemoveFile, ...]:
    """What an earlier installation has left and nothing uses any more, now that the new configuration is there."""
    old = settings.old_conf_name
    has_old = old != settings.conf_name and is_ours(conf.texts.get(old, ""))
    unused = [name for name in CERTIFICATES if certificates and name not in certificates]
    return (
        *((RemoveFile(f"{conf.path}/{old}"),) if has_old else ()),
        *(RemoveFile(f"{conf.path}/netplug-tls/{name}") for name in unused),
    )


def plan_removal(settings: InstallerSettings, conf: ConfFolder) -> tuple[RemoveFile, ...]:
    """The files of ours in the folder of network configurations, the configurations first."""
    names = dict.fromkeys((settings.conf_name, settings.old_conf_name))
    return (
        *(RemoveFile(f"{conf.path}/{name}") for name in names if is_ours(conf.texts.get(name, ""))),
        RemoveFile(f"{conf.path}/{FILE_NAME}"),
        *(RemoveFile(f"{conf.path}/netplug-tls/{name}") for name in CERTIFICATES),
    )


def find_warnings(settings: InstallerSettings, conf: ConfFolder, certificates: Iterable[str]) -> tuple[str, ...]:
    """What is seldom meant: certificates that are missing, and configurations that hide ours or are not removed."""
    mounted = frozenset(certificates)
    found = [
        f"{settings.tls_assets_dir}/{name} is missing, although another of the three files is there"
        for name in CERTIFICATES
        if mounted and name not in mounted
    ]
    earlier = [name for name in sorted(conf.texts) if name < settings.conf_name and name.endswith(_CONF_ENDINGS)]
    found += [
        f"{conf.path}/{name} comes before {settings.conf_name}, and a runtime uses the first configuration"
        for name in earlier
        if name != settings.old_conf_name or not is_ours(conf.texts[name])
    ]
    old = settings.old_conf_name
    if old != settings.conf_name:
        there = conf.texts.get(old)
        if there is None:
            found.append(f"{conf.path}/{old}, which CNI_OLD_CONF_NAME names, is not there")
        elif not is_ours(there):
            found.append(f"{conf.path}/{old}, which CNI_OLD_CONF_NAME names, is not ours; it stays")
    return tuple(found)
