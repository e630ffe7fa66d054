"""`make manifests`: what it writes is what is shipped, and what is of no kind any more goes."""

import shutil
from pathlib import Path

import pytest

import netplug_cli
from tools.manifests import HEAD, render_manifests, write

SHIPPED = Path(netplug_cli.__file__).parent / "manifests"


@pytest.fixture(scope="module")
def wanted() -> dict[str, str]:
    """What is to be shipped; rendering it takes seconds."""
    return dict(render_manifests())


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_into_an_empty_folder_it_writes_what_is_shipped(tmp_path: Path, wanted: dict[str, str]) -> None:
    assert len(list(write(tmp_path, wanted))) == len(files(SHIPPED))
    assert files(tmp_path) == files(SHIPPED)


def test_what_is_right_is_not_written_again(tmp_path: Path, wanted: dict[str, str]) -> None:
    shutil.copytree(SHIPPED, tmp_path, dirs_exist_ok=True)
    assert list(write(tmp_path, wanted)) == []


def test_an_edited_file_is_written_again_and_that_of_a_removed_kind_is_deleted(
    tmp_path: Path, wanted: dict[str, str]
) -> None:
    shutil.copytree(SHIPPED, tmp_path, dirs_exist_ok=True)
    edited, gone = tmp_path / "crds" / "v1" / "ippools.yaml", tmp_path / "crds" / "v3" / "windmills.yaml"
    edited.write_text("{}")
    gone.write_text(f"{HEAD}kind: Windmill\n")
    assert list(write(tmp_path, wanted)) == [f"wrote {edited}", f"removed {gone}"]
    assert files(tmp_path) == files(SHIPPED)


def test_a_file_written_by_hand_stays(tmp_path: Path, wanted: dict[str, str]) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("kind: Deployment\n")
    assert f"removed {mine}" not in list(write(tmp_path, wanted))
    assert mine.read_text() == "kind: Deployment\n"
