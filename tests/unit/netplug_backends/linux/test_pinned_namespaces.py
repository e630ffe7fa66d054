"""Lines of the mount table, and error texts."""

import errno

import pytest

from netplug_backends.linux.pinned_namespaces import NamespaceRefused, PinnedNamespaces, _mount_of, _translated


@pytest.mark.parametrize(
    "line,expected",
    [
        ("36 35 0:4 net:[4026532] /run/lab/netns/a rw shared:7 - nsfs nsfs rw\n", ("/run/lab/netns/a", "nsfs")),
        ("36 35 0:4 / /tmp/a\\040b\\011c rw - tmpfs lab rw\n", ("/tmp/a b\tc", "tmpfs")),
        ("36 35 0:4 / /tmp/a\\134040b rw - tmpfs lab rw\n", ("/tmp/a\\040b", "tmpfs")),
    ],
)
def test_a_line_of_mountinfo(line: str, expected: tuple[str, str]) -> None:
    assert _mount_of(line) == expected


def test_missing_rights_give_a_hint() -> None:
    with pytest.raises(NamespaceRefused) as refused, _translated("making the network namespace", "/x"):
        raise OSError(errno.EPERM, "Operation not permitted")
    assert str(refused.value) == (
        "making the network namespace /x: Operation not permitted; "
        "root is needed, or a user namespace: unshare --user --map-root-user --net --mount"
    )


def test_any_other_refusal_has_the_kernels_text() -> None:
    with (
        pytest.raises(NamespaceRefused, match=r"^making the network namespace /x: No space left on device$"),
        _translated("making the network namespace", "/x"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_path_that_is_no_namespace_is_not_entered() -> None:
    with pytest.raises(NamespaceRefused), PinnedNamespaces().enter("/dev/null"):
        pytest.fail("entered")


def test_an_empty_folder_has_no_pinned_namespace() -> None:
    assert PinnedNamespaces().find_below("/nowhere") == ()
