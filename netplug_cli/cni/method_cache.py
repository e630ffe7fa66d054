"""A cache of the methods that attrs compiles for value classes, so that a CNI call does not compile them again.

attrs writes the methods of each class as source text and compiles that text in every process. Python stores no bytecode
for it, and compiling it takes a third of the time that an ADD needs for its imports. ``write_cache`` runs when the
executables are installed. It stores the compiled methods for one version of Python, in the folder where Python stores
this module's own bytecode. ``netplugctl`` keeps a file of its own there, as Python keeps bytecode: what a command had
to compile is stored when it ends (``keep_compiled``). The key of an entry is the source text itself, so an entry is
never out of date; a text without an entry is compiled.
"""

from __future__ import annotations

import marshal
import os
import re
import sys
from _frozen_importlib_external import MAGIC_NUMBER  # importlib.util offers it too, but takes longer to import
from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any

__all__ = [
    "MethodCache", "cache_file", "compile_attrs_with", "keep_compiled", "read_cache", "use_cache", "write_cache",
]  # fmt: skip

_PACKAGES = ("netplug_core", "netplug_backends", "netplug_cli.cni")
# No executable on a host loads these modules, and they need libraries that are not installed there.
_EXCLUDED = ("netplug_core.testing",)

# The first number in the text of a class's hash method. attrs draws it anew in each process; any value works.
_HASH_SALT = re.compile(r"(hash\(\(\s+)-?\d+,")


_TOOL = "netplugctl"
_MOST_STORED = 4_000  # with more, most are of releases that are gone


class MethodCache:
    """Compiled methods, by the name that attrs gives the source text of a class and the text itself."""

    def __init__(self, stored: dict[str, bytes] | None = None) -> None:
        self.stored = {} if stored is None else stored

    def add(self, text: str, name: str, code: CodeType) -> None:
        """Store the code that a text was compiled to."""
        self.stored[_key(text, name)] = marshal.dumps(code)

    def find(self, text: str, name: str) -> CodeType | None:
        """The stored code of a text; None if there is none."""
        code = self.stored.get(_key(text, name))
        return None if code is None else marshal.loads(code)  # noqa: S302  # as Python reads bytecode of its own


def use_cache() -> None:
    """Let attrs take the methods of classes from the cache, if there is one."""
    cache = read_cache()
    if cache.stored:
        compile_attrs_with(lambda text, name: cache.find(text, name) or compile(text, name, "exec"))


def write_cache() -> int:
    """Compile the methods of every class that an executable may load, and store them; return the number of classes.

    Raises:
        OSError: the file cannot be written.
    """
    cache = MethodCache()

    def compile_and_store(text: str, name: str) -> CodeType:
        code = compile(text, name, "exec")
        cache.add(text, name, code)
        return code

    compile_attrs_with(compile_and_store)
    _import_all()
    _store(cache, cache_file())
    return len(cache.stored)


def keep_compiled() -> Callable[[], None]:
    """Let attrs take methods from the cache of the tool; what is returned stores those that had to be compiled.

    It stores nothing where Python writes no bytecode, or may not.
    """
    file = cache_file(_TOOL)
    cache, compiled = read_cache(file), MethodCache()

    def find_or_compile(text: str, name: str) -> CodeType:
        code = cache.find(text, name)
        if code is None:
            code = compile(text, name, "exec")
            compiled.add(text, name, code)
        return code

    def store() -> None:
        if compiled.stored and not sys.dont_write_bytecode:
            kept = cache.stored if len(cache.stored) < _MOST_STORED else {}
            with suppress(OSError):  # an installation that the user may not write
                _store(MethodCache({**kept, **compiled.stored}), file)

    compile_attrs_with(find_or_compile)
    return store


def _store(cache: MethodCache, file: str) -> None:
    from netplug_backends.host.atomic_files import OPEN_FILE_MODE, make_folder, replace_file  # no call writes it

    make_folder(os.path.dirname(file))
    replace_file(file, marshal.dumps((MAGIC_NUMBER, cache.stored)), OPEN_FILE_MODE)


def cache_file(program: str = "") -> str:
    """The path of the cache of a program for this version of Python, beside this module's own bytecode.

    No program: that of the executables.
    """
    path = os.path.splitext(__spec__.cached or __file__)[0]
    if program:
        folder, name = os.path.split(path)
        path = os.path.join(folder, name.replace("method_cache", program, 1))
    return f"{path}.methods"


def read_cache(path: str = "") -> MethodCache:
    """The cache in a file, that of the executables if none is named; an empty one if it cannot be read.

    A call without a cache is only slower.
    """
    with suppress(OSError, EOFError, ValueError, TypeError), open(path or cache_file(), "rb") as file:
        match marshal.load(file):  # noqa: S302  # as Python reads bytecode of its own
            # Pre-releases of one Python version can differ in their bytecode, and crash on that of another.
            case (magic, dict(stored)) if magic == MAGIC_NUMBER:
                return MethodCache(stored)
    return MethodCache()


def _key(text: str, name: str) -> str:
    return name + _HASH_SALT.sub(r"\1", text)


def compile_attrs_with(compile_text: Callable[[str, str], CodeType]) -> None:
    """Make attrs compile source text with a function.

    attrs calls the built-in ``compile`` by its name, so a function of that name in its module takes precedence.
    """
    from attr import _make

    def compile_for_attrs(text: str, name: str, *how: Any, **options: Any) -> Any:  # noqa: ANN401  # as the built-in
        if how == ("exec",) and not options:
            return compile_text(text, name)
        return compile(text, name, *how, **options)  # a later attrs may pass other arguments

    # By setattr, because the type stubs of attrs have no such name.
    setattr(_make, "compile", compile_for_attrs)  # noqa: B010


def _import_all() -> None:
    from importlib import import_module
    from pkgutil import walk_packages

    for package in _PACKAGES:
        for found in walk_packages(import_module(package).__path__, f"{package}.", onerror=lambda _name: None):
            if found.name.startswith(_EXCLUDED):
                continue
            with suppress(ImportError):  # the library of a backend that is not used here
                import_module(found.name)
