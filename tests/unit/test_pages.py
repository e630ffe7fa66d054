"""What the pages show is true: links lead somewhere, and what needs no server runs and prints what stands below it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from netplug_core import __version__

ROOT = Path(__file__).parents[2]
BACKENDS = ROOT / "docs" / "backends"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def printed(folder: Path, *command: str, **variables: str) -> str:
    """What a command prints with the programs of this environment, without the blanks that end its lines."""
    environ = os.environ | variables | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environ)
    assert ran.stderr == ""
    return re.sub(r" +$", "", ran.stdout, flags=re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What a heading can be linked by; a comment of a code block is none."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_its_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_place_that_the_map_of_the_code_names_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`(netplug_[a-z]+(?:/[\w.]+)+/?)`", text)
    assert len(named) > 50
    core = text[text.index("### In `netplug_core`") : text.index("### In the other packages")]
    named += [
        f"netplug_core/{each}"
        for row in re.findall(r"^\| (`.*?) \|", core, re.MULTILINE)
        for each in row.strip("`").split("`, `")
    ]
    assert [path for path in named if not (ROOT / path).exists() and not (ROOT / f"{path}.py").exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_row_of_a_table_has_as_many_cells_as_its_head(page: Path) -> None:
    """A bar begins a cell unless a backslash stands before it, also in code between backticks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for head, *rows in (table.splitlines() for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)):
        counts = {row: len(re.findall(r"(?<!\\)\|", row)) for row in (head, *rows)}
        assert {row: count for row, count in counts.items() if count != counts[head]} == {}


def test_the_index_names_every_page_of_a_backend() -> None:
    linked = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (BACKENDS / "README.md").read_text()))
    assert linked == {page.name for page in BACKENDS.glob("*.md")} - {"README.md"}


def test_the_page_of_memory_prints_what_it_says(tmp_path: Path) -> None:
    page = BACKENDS / "memory.md"
    (script,) = blocks(page, "sh")
    examples = (printed(tmp_path, sys.executable, "-c", example) for example in blocks(page, "python"))
    assert [printed(tmp_path, "bash", "-ec", script), *examples] == blocks(page, "text")


def test_the_page_of_sqlite_looks_into_a_file_and_saves_it(tmp_path: Path) -> None:
    look, save = blocks(BACKENDS / "sqlite.md", "sh")
    path = tmp_path / "netplug.db"
    (pool,) = re.findall(r"<<'YAML'\n(.*?)YAML", (BACKENDS / "memory.md").read_text(), re.DOTALL)
    (tmp_path / "pool.yaml").write_text(pool)
    settings = {"DATASTORE_TYPE": "sqlite", "SQLITE_PATH": str(path)}
    printed(tmp_path, "netplugctl", "create", "-f", "pool.yaml", **settings)
    assert printed(tmp_path, "bash", "-ec", look, **settings) == "1 ClusterInformation default\n2 IPPool main\n"
    saving = save.replace("/var/lib/netplug/netplug.db", str(path))
    assert [printed(tmp_path, "bash", "-ec", saving)] == blocks(BACKENDS / "sqlite.md", "text")
    settings["SQLITE_PATH"] = "backup.db"
    assert "10.65.0.0/24" in printed(tmp_path, "netplugctl", "get", "ippools", **settings)


def test_the_quick_start_of_a_cluster_names_what_there_is(tmp_path: Path) -> None:
    """The whole page is followed at night; this is what needs no cluster: its Installation, objects and archive."""
    page = ROOT / "docs" / "quickstart-kubernetes.md"
    text = page.read_text()
    (installation,) = re.findall(r"<<'YAML'\n(apiVersion: operator.*?)YAML", text, re.DOTALL)
    (tmp_path / "installation.yaml").write_text(installation)
    judged = printed(tmp_path, "netplugctl", "install", "validate", "-f", "installation.yaml")
    assert judged == "installation.yaml#1 Installation(default): valid\n"

    (installing, *_) = [shown for shown in blocks(page, "text") if "serverside-applied" in shown]
    rendered = yaml.safe_load_all(printed(tmp_path, "netplugctl", "install", "render", "--method", "operator"))
    wanted = [f"{each['kind'].lower()}/{each['metadata']['name']}" for each in rendered]
    applied = re.findall(r"^(\w+)[\w.]*(/\S+) serverside-applied$", installing, re.MULTILINE)
    assert ["".join(each) for each in applied] == wanted
    assert set(re.findall(r"netplug-node-v\S+[.]tar", text)) == {f"netplug-node-v{__version__}-amd64.oci.tar"}
