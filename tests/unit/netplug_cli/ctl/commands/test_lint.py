"""``lint``: every known-bad set has its findings, good sets have none, and ``--fix`` repairs what is certain."""

import json
import os
import re
import resource
import shutil
from pathlib import Path

import pytest

from netplug_core.lint.rules import Rule
from tests.harness.ctl import ToolHarness

SETS = Path(__file__).parents[4] / "lint"
BAD, GOOD = (sorted((SETS / name).iterdir()) for name in ("bad", "good"))
NETCONFS = Path(__file__).parents[4] / "netconfs"
FIXABLE = [
    "NP-L101-boolean.conflist", "NP-L101-number-in-quotes.conflist", "NP-L201-host-bits.yaml", "NP-L309-block.yaml",
    "NP-L309-list.yaml",
]  # fmt: skip


def judge(harness: ToolHarness, path: Path, *more: str) -> list[dict[str, object]]:
    """What is found in a set; its file ``arguments`` has more of the command line."""
    arguments = path / "arguments"
    argv = arguments.read_text().replace("{}", str(path)).split() if arguments.is_file() else []
    files = ["-f", str(path)]
    if "--datastore" in argv:
        assert harness.run_command("create", "-f", str(path / "stored.yaml")) == 0
        files = ["-f", str(path / "pool.yaml")]
    status = harness.run_command("lint", *files, *argv, *more, "-o", "json")
    assert status in (0, 3), harness.err
    report = json.loads(harness.out)
    assert (status == 3) is bool(report["errors"] or ("--strict" in more and report["warnings"]))
    found: list[dict[str, object]] = report["findings"]
    return found


def ids_of(path: Path) -> set[str]:
    return set(re.findall(r"NP-L\d{3}", path.name))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_a_known_bad_set_has_its_finding_and_no_other(harness: ToolHarness, path: Path) -> None:
    found = judge(harness, path)
    assert {one["id"] for one in found} == ids_of(path)
    assert all(one["accepted"] and one["next"] and one["object"] and one["field"] for one in found)
    assert any(one["fixable"] for one in found) is (path.name in FIXABLE)


def test_every_rule_has_a_known_bad_set() -> None:
    firsts = {path.name[: len("NP-L000")] for path in BAD}
    assert firsts == {rule.identifier for rule in Rule}
    assert len(BAD) > len(Rule) > 40


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.name)
def test_a_good_set_has_no_finding(harness: ToolHarness, path: Path) -> None:
    assert judge(harness, path, "--strict") == []


@pytest.mark.parametrize("path", sorted((NETCONFS / "right").iterdir()), ids=lambda path: path.stem)
def test_a_configuration_that_works_has_no_error(harness: ToolHarness, path: Path) -> None:
    assert [one for one in judge(harness, path) if one["severity"] == "error"] == []


def test_a_configuration_that_is_refused_has_an_error(harness: ToolHarness, tmp_path: Path) -> None:
    count = 0
    for path in sorted((NETCONFS / "wrong").iterdir()):
        netconf = json.loads(path.read_text())["configuration"]
        if isinstance(netconf, dict) and {"type", "ipam"} <= set(netconf) and netconf["type"] == "netplug":
            written = harness.write_file(json.dumps(netconf), "10-netplug.conf")
            assert [one["id"] for one in judge(harness, Path(written))], path.name
            count += 1
    assert count > 40


# --- repairs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIXABLE)
def test_a_repair_leaves_no_finding_and_changes_one_value(harness: ToolHarness, tmp_path: Path, name: str) -> None:
    path = Path(shutil.copy(SETS / "bad" / name, tmp_path))
    before = path.read_text()
    assert all(one["fixable"] for one in judge(harness, path))
    assert harness.run_command("lint", "--fix", "--dry-run", "-f", str(path)) == 3
    shown = harness.out.splitlines()
    assert shown[:2] == [f"--- {path}", f"+++ {path}"]
    assert path.read_text() == before

    path.chmod(0o640)
    assert harness.run_command("lint", "--fix", "-f", str(path)) == 0, harness.err
    assert harness.out.endswith("0 errors and 0 warnings in 1 object\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [name]
    removed = [line for line in shown[2:] if line.startswith("-")]
    assert 1 <= len(removed) <= 2  # a block of YAML has two lines
    kept = set(before.splitlines()) - {line[1:] for line in removed}
    assert kept <= set(path.read_text().splitlines())


def test_each_item_of_a_list_and_each_document_is_repaired_where_it_is(harness: ToolHarness) -> None:
    pool = "{apiVersion: projectnetplug.org/v3, kind: IPPool, metadata: {name: %s}, spec: {cidr: '%s'}}"
    items = f"kind: IPPoolList\nitems:\n- {pool % ('a', '10.0.0.1/24')}\n- {pool % ('b', '10.0.1.0/24')}\n"
    file = harness.write_file(f"# first\n{items}---\n{pool % ('c', '10.0.2.7/24')}  # last\n")
    assert harness.run_command("lint", "--fix", "-f", file) == 0
    repaired = items.replace("10.0.0.1", "10.0.0.0")
    assert Path(file).read_text() == f"# first\n{repaired}---\n{pool % ('c', '10.0.2.0/24')}  # last\n"


def test_a_value_that_two_places_share_is_left_alone(harness: ToolHarness) -> None:
    pool = (
        "apiVersion: projectnetplug.org/v3\nkind: IPPool\nmetadata: {name: a, annotations: {net: &net 10.0.0.1/24}}\n"
    )
    file = harness.write_file(f"{pool}spec: {{cidr: *net}}\n")
    before = Path(file).read_text()
    assert harness.run_command("lint", "--fix", "-f", file) == 3
    assert f"{file}#1 spec.cidr: the value cannot be replaced here; change it by hand" in harness.err
    assert Path(file).read_text() == before


def test_a_mac_address_that_yaml_reads_as_a_number_stays(harness: ToolHarness) -> None:
    annotations = "annotations: {cni.projectnetplug.org/hwAddr: 12:34:56:12:34:56}"
    file = harness.write_file(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web, {annotations}}}\n")
    before = Path(file).read_text()
    assert harness.run_command("lint", "--fix", "-f", file) == 3
    assert "9783981296" in harness.out
    assert "a text is expected; quote what is written there" in harness.out
    assert Path(file).read_text() == before


def test_json_with_tabs_is_left_alone(harness: ToolHarness) -> None:
    file = harness.write_file((SETS / "bad" / "NP-L101-boolean.conflist").read_text().replace("  ", "\t"), "a.conflist")
    assert harness.run_command("lint", "--fix", "-f", file) == 3
    assert "change it by hand" in harness.err


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["NP-L201-host-bits.yaml", "NP-L309-block.yaml", "NP-L309-list.yaml"])
def test_line_endings_a_mark_and_a_mode_stay(harness: ToolHarness, tmp_path: Path, name: str, mark: bytes) -> None:
    unix, windows = tmp_path / f"unix-{name}", tmp_path / f"windows-{name}"
    text = (SETS / "bad" / name).read_bytes()
    unix.write_bytes(text)
    windows.write_bytes(mark + text.replace(b"\n", b"\r\n") + b"\r\n# mixed\n")
    windows.chmod(0o600)
    for file in (unix, windows):
        assert harness.run_command("lint", "--fix", "-f", str(file)) == 0, harness.err
    assert unix.read_bytes() != text
    assert windows.read_bytes() == mark + unix.read_bytes().replace(b"\n", b"\r\n") + b"\r\n# mixed\n"
    assert windows.stat().st_mode & 0o777 == 0o600


def test_a_link_and_an_owner_stay(harness: ToolHarness, tmp_path: Path) -> None:
    file = harness.write_pools(("a", "10.0.0.1/24"))
    if os.geteuid() == 0:
        os.chown(file, 1234, 1234)
    owner = os.stat(file).st_uid
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    assert harness.run_command("lint", "--fix", "-f", str(link)) == 0
    assert link.is_symlink()
    assert "10.0.0.0/24" in Path(file).read_text()
    assert os.stat(file).st_uid == owner


def test_a_file_that_cannot_be_written_stays(harness: ToolHarness, tmp_path: Path) -> None:
    file = Path(harness.write_pools(("a", "10.0.0.1/24")))
    before, files = file.read_text(), os.listdir(file.parent)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))  # as if the disk were full
    try:
        assert harness.run_command("lint", "--fix", "-f", str(file)) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "it cannot be written: File too large" in harness.err
    assert (file.read_text(), os.listdir(file.parent)) == (before, files)


# --- command line ----------------------------------------------------------------------------------------------------


def test_the_table_names_object_field_value_and_what_to_do(harness: ToolHarness) -> None:
    file = harness.write_pools(("a", "10.0.0.0/16"), ("b", "10.0.16.0/20"), spec="blockSize: 22")
    assert harness.run_command("lint", "-f", file) == 3
    lines = harness.out.splitlines()
    assert [re.sub(" +", " ", line) for line in lines] == [
        "ID SEVERITY OBJECT FIELD VALUE SOURCE",
        f"NP-L209 warning IPPool(a) spec.blockSize blockSize 22 {file}#1",
        " a block of so many addresses can outgrow what a datastore accepts, and then takes no more; use 23 or more",
        " next: choose a longer blockSize",
        f"NP-L202 error IPPool(b) spec.cidr 10.0.16.0/20 {file}#2",
        " IPPool(b) CIDR overlaps with IPPool(a) CIDR 10.0.0.0/16",
        " next: give each pool a range of its own",
        f"NP-L209 warning IPPool(b) spec.blockSize blockSize 22 {file}#2",
        " a block of so many addresses can outgrow what a datastore accepts, and then takes no more; use 23 or more",
        " next: choose a longer blockSize",
        "",
        "1 error and 2 warnings in 2 objects",
    ]


def test_warnings_count_only_if_asked(harness: ToolHarness) -> None:
    file = harness.write_pools(("a", "10.0.0.0/16"), spec="blockSize: 22")
    assert harness.run_command("lint", "-f", file) == 0
    assert harness.run_command("lint", "-f", file, "--strict") == 3


def test_stored_resources_are_judged_too(harness: ToolHarness) -> None:
    assert harness.run_command("create", "-f", harness.write_pools(("a", "10.0.0.0/16"), spec="blockSize: 22")) == 0
    assert harness.run_command("lint", "--datastore", "-o", "json") == 0
    (found,) = json.loads(harness.out)["findings"]
    assert (found["id"], found["source"], found["object"]) == ("NP-L209", "datastore", "IPPool(a)")
    other = harness.write_pools(("b", "10.0.7.0/24"))
    assert harness.run_command("lint", "--datastore", "-f", other) == 3
    assert "NP-L202" in harness.out
    harness.is_unavailable = True
    assert harness.run_command("lint", "--datastore") == 1


def test_a_good_document_beside_an_unreadable_one_is_judged(harness: ToolHarness) -> None:
    pools = Path(harness.write_pools(("a", "10.0.0.0/16"), spec="blockSize: 22")).read_text()
    file = harness.write_file(f"{pools}---\nkind: [\n")
    assert harness.run_command("lint", "-f", file, "-f", str(harness.folder / "none.yaml")) == 3
    assert re.findall(r"NP-L\d+", harness.out) == ["NP-L001", "NP-L001", "NP-L209"]
    assert harness.out.endswith("2 errors and 1 warning in 3 objects\n")


def test_objects_of_others_are_skipped_and_named(harness: ToolHarness) -> None:
    file = harness.write_file("apiVersion: v1\nkind: Service\nmetadata: {name: web}\n")
    assert harness.run_command("lint", "-f", file) == 0
    assert harness.err == f"netplugctl: skipped, since lint does not know them: {file}#1\n"
    assert harness.out == "0 errors and 0 warnings in 0 objects\n"


@pytest.mark.parametrize(
    "argv, part",
    [
        ((), "Give at least one file"),
        (("-f", "-", "--fix"), "standard input is none"),
        (("-f", "-", "--dry-run"), "--dry-run is for --fix"),
        (("-f", "-", "--host-cidr", "10.0.0.0/33"), "a CIDR such as 10.1.0.0/16 is expected"),
    ],
)
def test_a_wrong_command_line(harness: ToolHarness, argv: tuple[str, ...], part: str) -> None:
    assert harness.run_command("lint", *argv) == 2
    assert part in harness.err


def test_standard_input_is_judged(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = Path(harness.write_pools(("a", "10.0.0.1/16")))
    with file.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert harness.run_command("lint", "-f", "-") == 3
    assert "standard input#1" in harness.out


@pytest.mark.parametrize(
    "text, part",
    [
        ("[]\n---\n[]\n", "one list of routes is expected"),
        ("[{dst: 10.0.0.0/33}]", "expected default or a CIDR @ "),
        ("{}", "expected a list @ "),
    ],
)
def test_routes_that_cannot_be_read(harness: ToolHarness, text: str, part: str) -> None:
    routes = harness.write_file(text, "routes")
    assert harness.run_command("lint", "-f", harness.write_pools(("a", "10.0.0.0/16")), "--routes", routes) == 1
    assert part in harness.err


def test_with_json_the_differences_are_beside_it(harness: ToolHarness) -> None:
    assert harness.run_command("lint", "--fix", "-o", "json", "-f", harness.write_pools(("a", "10.0.0.1/16"))) == 0
    assert json.loads(harness.out)["errors"] == 0
    assert "+spec: {cidr: '10.0.0.0/16'}" in harness.err


def test_a_file_under_two_names_is_judged_and_repaired_once(harness: ToolHarness) -> None:
    file = harness.write_pools(("a", "10.0.0.1/16"))
    folder, name = os.path.split(file)
    link = harness.folder / "link.yaml"
    link.symlink_to(file)
    names = ("-f", file, "-f", f"{folder}/./{name}", "-f", str(link))
    assert harness.run_command("lint", *names, "-o", "json") == 3
    assert [one["source"] for one in json.loads(harness.out)["findings"]] == [f"{file}#1"]
    assert harness.run_command("lint", "--fix", *names) == 0
    assert harness.out.count("+spec:") == 1
    assert Path(file).read_text().count("10.0.0.0/16") == 1
