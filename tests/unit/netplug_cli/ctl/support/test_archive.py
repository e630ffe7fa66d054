"""What is in an archive."""

from pathlib import Path

from netplug_cli.ctl.commands.support import pack
from netplug_core.support import Bundle, BundleFile
from tests.harness.support_bundles import read_bundle


def test_equal_bundles_are_equal_archives(tmp_path: Path) -> None:
    bundle = Bundle(files=(BundleFile(path="a/b.txt", content=b"x"), BundleFile(path="c", content=b"")), entries=())
    content = pack(bundle, "top", 1_700_000_000)
    assert content == pack(bundle, "top", 1_700_000_000)
    (tmp_path / "x").write_bytes(content)
    assert read_bundle(tmp_path / "x") == {"a/b.txt": "x", "c": ""}
