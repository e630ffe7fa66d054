"""Measures processes from outside and work of this one, and summarizes many samples."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from statistics import median, quantiles

from attrs import define, field, frozen

__all__ = [
    "Cost", "ProcessSample", "ProcessSeries", "cost_of", "cost_ratio", "format_report", "median_cost", "run",
]  # fmt: skip


@frozen(kw_only=True)
class ProcessSample:
    """The cost of one process in wall-clock and CPU seconds (with its children's), its exit status and its output."""

    wall_s: float
    cpu_s: float
    status: int
    output: str


@define
class ProcessSeries:
    """The samples of one command of one plugin."""

    name: str
    verb: str
    samples: list[ProcessSample] = field(factory=list)

    def wall_ms(self) -> float:
        """The median of wall-clock time."""
        return median(sample.wall_s for sample in self.samples) * 1e3

    def cpu_ms(self) -> float:
        """The median of CPU time."""
        return median(sample.cpu_s for sample in self.samples) * 1e3

    def p95_ms(self) -> float:
        """The 95th percentile of wall-clock time."""
        return quantiles((sample.wall_s for sample in self.samples), n=20)[-1] * 1e3

    def p99_ms(self) -> float:
        """The 99th percentile of wall-clock time."""
        return quantiles((sample.wall_s for sample in self.samples), n=100)[-1] * 1e3


def run(command: Sequence[str], stdin: bytes, environ: Mapping[str, str]) -> ProcessSample:
    """Run a process to its end, as a runtime would."""
    with tempfile.TemporaryFile() as stdin_file, tempfile.TemporaryFile() as output_file:
        stdin_file.write(stdin)
        stdin_file.seek(0)
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=stdin_file, stdout=output_file, stderr=output_file, env=dict(environ))
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output_file.seek(0)
        output = output_file.read().decode(errors="replace")
    return ProcessSample(wall_s=wall, cpu_s=usage.ru_utime + usage.ru_stime, status=process.returncode, output=output)


def format_report(series: Sequence[ProcessSeries]) -> str:
    """A table: medians, the 95th percentile, and ratios to the first series of the same command."""
    lines = [f"{'':22} {'':4} {'wall ms':>8} {'p95':>7} {'CPU ms':>8} {'wall ratio':>11} {'CPU ratio':>10}  n"]
    for row in series:
        reference = next(other for other in series if other.verb == row.verb)
        wall, cpu = row.wall_ms() / reference.wall_ms(), row.cpu_ms() / reference.cpu_ms()
        lines.append(
            f"{row.name:22} {row.verb:4} {row.wall_ms():8.1f} {row.p95_ms():7.1f} {row.cpu_ms():8.1f} "
            f"{wall:11.2f} {cpu:10.2f}  {len(row.samples)}"
        )
    return "\n".join(lines)


# --- work of this process ---------------------------------------------------------------------------------------------


@frozen
class Cost:
    """Seconds of the wall clock, and of CPU of this process and its children. The second depends less on other work."""

    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.wall_s * 1e3:6.1f} ms (CPU {self.cpu_s * 1e3:5.1f})"


def cost_of(work: Callable[[], object]) -> Cost:
    """What some work costs."""
    began, used_s = time.perf_counter(), _used_s()
    work()
    return Cost(time.perf_counter() - began, _used_s() - used_s)


def median_cost(costs: Sequence[Cost]) -> Cost:
    """The medians of both."""
    return Cost(median(cost.wall_s for cost in costs), median(cost.cpu_s for cost in costs))


def cost_ratio(cost: Cost, reference: Cost) -> str:
    """Both in times of a reference."""
    return f"{cost.wall_s / reference.wall_s:.3f} (CPU {cost.cpu_s / reference.cpu_s:.3f})"


def _used_s() -> float:
    usages = (getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
