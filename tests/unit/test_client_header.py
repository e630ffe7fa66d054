"""`python -m tools.client`: the header of the static client has what this release prints."""

from tools.client import HEADER, render_header


def test_the_header_is_as_it_is_generated() -> None:
    assert HEADER.read_text() == render_header()


def test_the_client_is_short() -> None:
    """So that a reader can check all of it: it runs as root, once for each call of a runtime."""
    assert len((HEADER.parent / "netplug.c").read_text().splitlines()) <= 400
