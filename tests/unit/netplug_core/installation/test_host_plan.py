"""The order of an installation and of its removal, and what is never touched."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.errors import ConfigurationError
from netplug_core.installation.installer import (
    CERTIFICATES,
    BinFolder,
    ConfFolder,
    Conflist,
    CopyProgram,
    InstallPrograms,
    NoWritableFolder,
    RemoveFile,
    RenewKubeconfig,
    Step,
    WriteFile,
    find_warnings,
    helper_names,
    plan_install,
    plan_removal,
    read_installer_settings,
    usable_folders,
)

OURS = '{"type": "netplug"}'
CONFLIST = Conflist(text=OURS, unknown=())
BOTH = frozenset({"netplug", "netplug-ipam"})


def bin_folder(path: str = "/bin", names: frozenset[str] = frozenset(), *, is_writable: bool = True) -> BinFolder:
    return BinFolder(path=path, is_writable=is_writable, names=names)


def conf_folder(**texts: str) -> ConfFolder:
    return ConfFolder(path="/net.d", texts={name.replace("_", "-") + ".conflist": texts[name] for name in texts})


def plan(
    *folders: BinFolder, conf: ConfFolder | None = None, certificates: tuple[str, ...] = (), **environ: str
) -> tuple[Step, ...]:
    return plan_install(
        read_installer_settings(environ),
        CONFLIST,
        bin_folders=folders or (bin_folder(),),
        conf=conf or conf_folder(),
        helpers={"tuning": "/image/tuning", "portmap": "/image/portmap"},
        certificates=dict.fromkeys(certificates, b"PEM"),
    )


def test_everything_in_its_order() -> None:
    conf = ConfFolder(path="/net.d", texts={"5-netplug.conf": OURS, "10-other.conf": "{}"})
    assert plan(conf=conf, certificates=("etcd-key",), CNI_OLD_CONF_NAME="5-netplug.conf") == (
        InstallPrograms("/bin"),
        CopyProgram("/image/portmap", "/bin/portmap", keeps=False),
        CopyProgram("/image/tuning", "/bin/tuning", keeps=False),
        WriteFile(path="/net.d/netplug-tls/etcd-key", content=b"PEM", mode=0o600),
        RenewKubeconfig(),
        WriteFile(path="/net.d/10-netplug.conflist", content=OURS.encode(), mode=0o600),
        RemoveFile("/net.d/5-netplug.conf"),
        RemoveFile("/net.d/netplug-tls/etcd-ca"),
        RemoveFile("/net.d/netplug-tls/etcd-cert"),
    )


@given(
    certificates=st.sets(st.sampled_from(CERTIFICATES)),
    updates=st.sampled_from(["true", "false"]),
    name=st.sampled_from(["10-netplug.conflist", "20-netplug.conflist"]),
    present=st.sets(st.sampled_from(["netplug", "netplug-ipam", "portmap"])),
)
def test_51_the_configuration_comes_after_what_it_needs_and_before_what_is_removed(
    certificates: set[str], updates: str, name: str, present: set[str]
) -> None:
    steps = plan(
        bin_folder(names=frozenset(present)),
        conf=conf_folder(**{"10_netplug": OURS}),
        certificates=tuple(certificates),
        CNI_CONF_NAME=name,
        UPDATE_CNI_BINARIES=updates,
    )
    place = [isinstance(step, WriteFile) and step.path == f"/net.d/{name}" for step in steps].index(True)
    assert not any(isinstance(step, RemoveFile) for step in steps[:place])
    assert all(isinstance(step, RemoveFile) for step in steps[place + 1 :])
    assert (InstallPrograms("/bin") in steps) == (updates == "true" or not present.issuperset(BOTH))
    assert (RemoveFile("/net.d/10-netplug.conflist") in steps) == (name != "10-netplug.conflist")


def test_a_configuration_of_others_is_neither_replaced_nor_removed() -> None:
    theirs = conf_folder(**{"10_netplug": '{"type": "bridge"}'})
    with pytest.raises(ConfigurationError) as refusal:
        plan(conf=theirs)
    assert str(refusal.value) == (
        "/net.d/10-netplug.conflist: '…' is not accepted; it has no plugin of netplug, so it is not replaced; set "
        "CNI_CONF_NAME to another name, or remove it"
    )
    steps = plan(conf=theirs, CNI_CONF_NAME="20-netplug.conflist")
    assert not any(isinstance(step, RemoveFile) for step in steps)
    settings = read_installer_settings({})
    assert RemoveFile("/net.d/10-netplug.conflist") not in plan_removal(settings, theirs)
    assert find_warnings(read_installer_settings({"CNI_CONF_NAME": "20-netplug.conflist"}), theirs, ()) == (
        "/net.d/10-netplug.conflist comes before 20-netplug.conflist, and a runtime uses the first configuration",
        "/net.d/10-netplug.conflist, which CNI_OLD_CONF_NAME names, is not ours; it stays",
    )


def test_an_empty_file_is_nobodys() -> None:
    assert plan(conf=conf_folder(**{"10_netplug": "\n"}))[-1] == WriteFile(
        path="/net.d/10-netplug.conflist", content=OURS.encode(), mode=0o600
    )


def test_the_configuration_is_removed_first() -> None:
    conf = conf_folder(**{"10_netplug": OURS, "20_netplug": OURS, "30_other": "{}"})
    settings = read_installer_settings({"CNI_CONF_NAME": "20-netplug.conflist"})
    assert [step.path.removeprefix("/net.d/") for step in plan_removal(settings, conf)] == [
        "20-netplug.conflist",
        "10-netplug.conflist",
        "netplug-kubeconfig",
        "netplug-tls/etcd-ca",
        "netplug-tls/etcd-cert",
        "netplug-tls/etcd-key",
    ]


def test_52_a_folder_that_cannot_be_written_is_left_out() -> None:
    closed, other = bin_folder(is_writable=False), bin_folder("/other")
    assert usable_folders([closed, other], read_installer_settings({})) == (other,)


def test_no_folder_that_can_be_written() -> None:
    folders = [bin_folder(is_writable=False, names=BOTH), bin_folder("/other", is_writable=False)]
    with pytest.raises(NoWritableFolder) as refusal:
        usable_folders(folders, read_installer_settings({}))
    assert str(refusal.value) == (
        "folders for plugins: '/bin, /other' is not accepted; one that exists and can be written is expected; mount "
        "the runtime's plugin folder there"
    )
    keeping = read_installer_settings({"UPDATE_CNI_BINARIES": "false"})
    assert usable_folders(folders, keeping) == ()
    with pytest.raises(NoWritableFolder):
        usable_folders(folders[1:], keeping)


@pytest.mark.parametrize(
    "missing", list(itertools.chain.from_iterable(itertools.combinations(BOTH, n) for n in (1, 2)))
)
def test_existing_programs_are_kept_only_if_both_are_there(missing: tuple[str, ...]) -> None:
    folder = bin_folder(names=BOTH - frozenset(missing))
    assert InstallPrograms("/bin") in plan(folder, UPDATE_CNI_BINARIES="false")
    kept = plan(bin_folder(names=BOTH), UPDATE_CNI_BINARIES="false")
    assert InstallPrograms("/bin") not in kept
    assert CopyProgram("/image/portmap", "/bin/portmap", keeps=True) in kept


def test_our_programs_and_skipped_ones_are_no_helpers() -> None:
    names = [*BOTH, "netplug-standalone", "install", "tuning", "portmap", "flannel"]
    assert helper_names(names, read_installer_settings({"SKIP_CNI_BINARIES": "tuning,netplug"})) == (
        "flannel",
        "portmap",
    )


def test_57_what_is_seldom_meant_is_a_warning() -> None:
    conf = conf_folder(**{"05_other": "{}", "20_later": "{}", "10_netplug": OURS})
    settings = read_installer_settings({"CNI_OLD_CONF_NAME": "07-netplug.conf"})
    assert find_warnings(settings, conf, ["etcd-cert"]) == (
        "/netplug-secrets/etcd-ca is missing, although another of the three files is there",
        "/netplug-secrets/etcd-key is missing, although another of the three files is there",
        "/net.d/05-other.conflist comes before 10-netplug.conflist, and a runtime uses the first configuration",
        "/net.d/07-netplug.conf, which CNI_OLD_CONF_NAME names, is not there",
    )
    assert find_warnings(read_installer_settings({}), conf_folder(), ()) == ()


def test_our_old_configuration_is_no_warning() -> None:
    settings = read_installer_settings({"CNI_CONF_NAME": "20-netplug.conflist"})
    assert find_warnings(settings, conf_folder(**{"10_netplug": OURS}), ()) == ()
