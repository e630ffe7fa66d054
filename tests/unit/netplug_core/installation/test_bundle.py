"""Manifests of bundles: what is accepted, how a bundle is named, and where a copy goes."""

import json

import pytest

from netplug_core.errors import ConfigurationError
from netplug_core.installation.bundle import Bundle, BundleFile, find_place, parse_bundle, render_bundle

FILES = tuple(BundleFile(name, "0" * 64, is_executable=name == "launch") for name in ("client", "launch", "lock"))
BUNDLE = Bundle(version="3.33.0", machine="x86_64", files=FILES)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert parse_bundle(render_bundle(BUNDLE), "m", "x86_64") == BUNDLE


def test_bundles_that_differ_have_different_names() -> None:
    other = Bundle(version="3.33.0", machine="x86_64", files=(*FILES, BundleFile("x", "1" * 64, is_executable=False)))
    assert BUNDLE.name.startswith("3.33.0-")
    assert len({BUNDLE.name, other.name}) == 2


def changed(**members: object) -> bytes:
    return json.dumps({**json.loads(render_bundle(BUNDLE)), **members}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        changed(version="../x"),
        changed(version=1),
        changed(files=[]),
        changed(files={"../x": {"sha256": "0" * 64, "executable": False}}),
        changed(files={"/x": {"sha256": "0" * 64, "executable": False}}),
        changed(files={"x": {"sha256": "0", "executable": False}}),
        changed(files={"x": None}),
    ],
)
def test_a_damaged_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"^/m: '…' is not accepted; the manifest of a bundle is expected: "):
        parse_bundle(content, "/m", "x86_64")


def test_a_bundle_for_another_architecture_is_refused() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse_bundle(render_bundle(BUNDLE), "/m", "aarch64")
    assert str(refusal.value) == "/m: 'x86_64' is not accepted; this machine is aarch64; use the image for it"


def test_a_bundle_without_a_program_is_refused() -> None:
    content = render_bundle(Bundle(version="1", machine="m", files=FILES[2:]))
    with pytest.raises(ConfigurationError, match="the bundle has no client, launch"):
        parse_bundle(content, "/m", "m")


def test_a_copy_goes_where_an_intact_one_is_or_where_nothing_is() -> None:
    name = BUNDLE.name
    assert find_place(BUNDLE, set(), set()) == name
    assert find_place(BUNDLE, {name}, {name}) == name
    assert find_place(BUNDLE, {name, "other"}, set()) == f"{name}.2"
    assert find_place(BUNDLE, {name, f"{name}.2"}, {f"{name}.2"}) == f"{name}.2"
    assert find_place(BUNDLE, {f"{name}.3"}, {f"{name}.3"}) == f"{name}.3"
