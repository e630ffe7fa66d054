"""Files of which no more than a limit is read, and what is no file to read."""

import os
from pathlib import Path

import pytest

from netplug_cli.ctl.support.host_files import FileContent, NotRegular, read_bytes


def test_the_beginning_or_the_end_is_read(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"123456")
    assert read_bytes(str(file), 4) == FileContent(content=b"1234", size=6)
    assert read_bytes(str(file), 4, is_end=True) == FileContent(content=b"3456", size=6)
    assert read_bytes(str(file), 9, is_end=True) == FileContent(content=b"123456", size=6)


def test_what_is_not_regular_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(NotRegular) as refused:
            read_bytes(path, 1)
        assert (refused.value.filename, refused.value.strerror) == (path, "not a regular file")
    with pytest.raises(IsADirectoryError):
        read_bytes(str(tmp_path), 1)
