"""How ``netplug`` and ``netplug-ipam`` begin: with the methods of value classes that were compiled before.

attrs writes the methods of each class as source text and compiles them in every process; of that Python keeps no
bytecode, and it is a third of what an ADD imports. So ``keep`` keeps it when the executables are installed, for one
version of Python, beside the bytecode that Python keeps itself. Each piece stands under the very text that it was
compiled from: nothing here can be out of date, and what is not there is compiled as ever.
"""

from __future__ import annotations

import marshal
import os
import re
from _frozen_importlib_external import MAGIC_NUMBER  # what importlib.util, which costs more, has it from
from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any

__all__ = ["MethodCache", "cache_file", "compile_attrs_with", "read_cache", "start", "write_cache"]

_PACKAGES = ("netplug_core", "netplug_backends", "netplug_cli.cni")
# What no executable on a host loads; tests of backends would want libraries of their own.
_EXCLUDED = ("netplug_core.testing",)

# The first number of a class's hash, another one in each process: any of them will do.
_HASH_SALT = re.compile(r"(hash\(\(\s+)-?\d+,")


class MethodCache:
    """The methods of classes, compiled, under the name that attrs gives a class's text and that text itself."""

    def __init__(self, stored: dict[str, bytes] | None = None) -> None:
        self.stored = {} if stored is None else stored

    def add(self, text: str, name: str, code: CodeType) -> None:
        """Keep what a text was compiled to."""
        self.stored[_key(text, name)] = marshal.dumps(code)

    def find(self, text: str, name: str) -> CodeType | None:
        """What was kept for a text; None where nothing was."""
        code = self.stored.get(_key(text, name))
        return None if code is None else marshal.loads(code)  # noqa: S302  # as Python reads bytecode of its own


def start() -> int:
    """Serve one call of a runtime; the exit status of the process."""
    kept = read_cache()
    if kept.stored:
        compile_attrs_with(lambda text, name: kept.find(text, name) or compile(text, name, "exec"))
    from netplug_cli.cni.main import main

    return main()


def write_cache() -> int:
    """Compile the methods of every class that an executable may load, and keep them; how many classes that is.

    Raises:
        OSError: the file cannot be written.
    """
    kept = MethodCache()

    def compiled(text: str, name: str) -> CodeType:
        code = compile(text, name, "exec")
        kept.add(text, name, code)
        return code

    compile_attrs_with(compiled)
    _import_all()
    file = cache_file()
    os.makedirs(os.path.dirname(file), exist_ok=True)
    beside = f"{file}.{os.getpid()}"  # a call that reads at this moment gets the old one, whole
    try:
        with open(beside, "wb") as new:
            marshal.dump((MAGIC_NUMBER, kept.stored), new)
        os.replace(beside, file)
    finally:
        with suppress(OSError):  # it has its place, or the disk is full
            os.unlink(beside)
    return len(kept.stored)


def cache_file() -> str:
    """Where this version of Python finds what was kept: where it keeps this module's own bytecode."""
    return f"{os.path.splitext(__spec__.cached or __file__)[0]}.methods"


def read_cache() -> MethodCache:
    """What was kept; nothing where nothing was, or where it cannot be read: then a call is slower, and that is all."""
    with suppress(OSError, EOFError, ValueError, TypeError), open(cache_file(), "rb") as file:
        match marshal.load(file):  # noqa: S302  # as Python reads bytecode of its own
            # Releases of one version may differ in their bytecode as long as it is not out, and crash on another's.
            case (magic, dict(stored)) if magic == MAGIC_NUMBER:
                return MethodCache(stored)
    return MethodCache()


def _key(text: str, name: str) -> str:
    return name + _HASH_SALT.sub(r"\1", text)


def compile_attrs_with(compile_text: Callable[[str, str], CodeType]) -> None:
    """Have attrs compile so. It calls the built-in by its name, so one that its module has goes first."""
    from attr import _make

    def made(text: str, name: str, *how: Any, **options: Any) -> Any:  # noqa: ANN401  # as the built-in
        if how == ("exec",) and not options:
            return compile_text(text, name)
        return compile(text, name, *how, **options)  # a release that asks for more than those that are known

    # Its types know of no such name.
    setattr(_make, "compile", made)  # noqa: B010


def _import_all() -> None:
    from importlib import import_module
    from pkgutil import walk_packages

    for package in _PACKAGES:
        for found in walk_packages(import_module(package).__path__, f"{package}.", onerror=lambda _name: None):
            if found.name.startswith(_EXCLUDED):
                continue
            with suppress(ImportError):  # a backend whose library is not installed is not used here either
                import_module(found.name)
