"""Reports a mutation run: the mutants of each module, and the survivors that the page of accepted ones does not have.

``nox -s mutation`` calls it in the folder where mutmut ran, with that page. A survivor is identified by its function
and the lines that it changes, because the number that mutmut gives it changes with every edit above it.
"""

import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

Mutation = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A mutant: ``module.function``, the lines that it takes away, those that it puts there."""

NOT_SURVIVED = {"killed", "timeout", "not checked"}
"""What mutmut says of a mutant that a test noticed, or that was left out: ``nox -s mutation -- '*.acquire.*'``."""


def run_mutmut(*arguments: str) -> list[str]:
    """What a command of mutmut prints."""
    ran = subprocess.run(["mutmut", *arguments], check=True, capture_output=True, text=True)
    return ran.stdout.splitlines()


def parse_function_name(mutant: str) -> str:
    """The ``module.function`` or ``module.Class.method`` that mutmut names ``x_function`` or ``xǁClassǁmethod``."""
    path, _, mangled = mutant.rpartition("__mutmut_")[0].rpartition(".")
    names = mangled.split("ǁ")[1:] or [mangled.removeprefix("x_")]
    return ".".join((path.rpartition(".")[2], *names))


def parse_change(function: str, lines: list[str]) -> Mutation:
    """The change that the lines of a diff make to a function; where they are indented does not count."""
    removed = tuple(line[1:].strip() for line in lines if line.startswith("-") and not line.startswith("---"))
    added = tuple(line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++"))
    return function, tuple(filter(None, removed)), tuple(filter(None, added))


def parse_accepted(page: str) -> set[Mutation]:
    """The changes that the page argues for: in its diff blocks, each below a line ``@@ module.function @@``."""
    changes = set()
    for block in re.findall(r"^```diff\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        for hunk in re.split(r"^@@ ", block, flags=re.MULTILINE)[1:]:
            head, *lines = hunk.splitlines()
            changes.add(parse_change(head.removesuffix(" @@"), lines))
    return changes


def format_change(survivor: Mutation) -> str:
    """A change as the page has it."""
    function, removed, added = survivor
    return "\n".join((f"@@ {function} @@", *(f"-{line}" for line in removed), *(f"+{line}" for line in added)))


def main(page: str) -> str:
    """Print numbers and survivors; the complaint, empty when every survivor is argued for."""
    numbers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    survivors: dict[Mutation, str] = {}
    for line in run_mutmut("results", "--all", "true"):
        mutant, _, outcome = line.strip().partition(": ")
        numbers[parse_function_name(mutant).partition(".")[0]][outcome] += 1
        if outcome not in NOT_SURVIVED:
            survivors[parse_change(parse_function_name(mutant), run_mutmut("show", mutant))] = outcome
    for module, outcomes in sorted(numbers.items()):
        print(f"{module:20}", ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
    known = parse_accepted(Path(page).read_text(encoding="utf-8"))
    is_whole = not any(outcomes["not checked"] for outcomes in numbers.values())
    for gone in sorted(known - set(survivors)) if is_whole else ():
        print(f"\nargued for, but it does not survive:\n{format_change(gone)}")
    unknown = sorted(set(survivors) - known)
    for survivor in unknown:
        print(f"\n{survivors[survivor]}, and not argued for:\n{format_change(survivor)}")
    return f"\n{len(unknown)} of {len(survivors)} survivors are not argued for in {page}" if unknown else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) or 0)
