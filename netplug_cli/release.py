"""The release this is, as in ``pyproject.toml``: asking the installed metadata would cost every call milliseconds."""

__all__ = ["RELEASE"]

RELEASE = "3.33.0"
