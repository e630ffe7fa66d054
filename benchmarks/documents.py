"""What a document costs ``netplugctl`` in a file of 5,000 pools beside one in a file of 100.

Each command is a process of its own on a new sqlite database. The CPU of a process that reads a file of one document
is taken off, so that its start does not count.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.measure import run

_TOOL = (sys.executable, "-I", "-c", "from netplug_cli.wiring.ctl import main; main()")
_FEW, _MANY = 100, 5_000
_GOAL = 1.3
_VERBS = ("create", "apply", "validate")  # after a creation, `apply` changes nothing


def measure(rounds: int) -> None:
    """Measure each verb; the small files in a quarter of so many rounds, the large one once.

    Raises:
        SystemExit: a command failed.
    """
    count = max(3, rounds // 4)
    with tempfile.TemporaryDirectory() as folder:
        start = {verb: median(figures) for verb, figures in _measure(folder, 1, count).items()}
        few = {verb: median(figures) for verb, figures in _measure(folder, _FEW, count).items()}
        many = {verb: median(figures) for verb, figures in _measure(folder, _MANY, 1).items()}
    print(f"CPU in ms for a document; goal: in a file of {_MANY} at most {_GOAL} times what it is in one of {_FEW}\n")
    for verb in _VERBS:
        of_few = (few[verb] - start[verb]) / (_FEW - 1) * 1e3
        of_many = (many[verb] - start[verb]) / (_MANY - 1) * 1e3
        print(f"{verb:10} {of_few:7.2f} of {_FEW} {of_many:7.2f} of {_MANY} {of_many / of_few:6.2f} times")


def _measure(folder: str, documents: int, rounds: int) -> dict[str, list[float]]:
    """The CPU seconds of each verb on a file of so many pools."""
    file = Path(folder) / f"{documents}.yaml"
    file.write_text("".join(map(_document, range(documents))))
    found: dict[str, list[float]] = {verb: [] for verb in _VERBS}
    for number in range(rounds):
        environ = os.environ | {"DATASTORE_TYPE": "sqlite", "SQLITE_PATH": f"{folder}/{documents}-{number}.db"}
        for verb in _VERBS:
            sample = run((*_TOOL, verb, "-f", str(file)), b"", environ)
            if sample.status:
                raise SystemExit(f"{verb}: {sample.output}")
            found[verb].append(sample.cpu_s)
    return found


def _document(number: int) -> str:
    cidr = f"10.{number // 256}.{number % 256}.0/24"
    return (
        "---\napiVersion: projectnetplug.org/v3\nkind: IPPool\n"
        f"metadata: {{name: pool-{number:04}}}\nspec: {{cidr: {cidr}}}\n"
    )
