"""Programs that do what no good program does, and what is left of them."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attrs import define, field

from netplug_backends.delegate.ipam import MAX_OUTPUT, DidNotEnd, Output, TooMuchOutput, run_program
from netplug_core.clock import Deadline
from netplug_core.testing.clock import ManualClock, RealClock
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

LONG = 50_000_000


@define
class Runner:
    """Runs shell scripts as programs."""

    folder: Path
    errors: list[bytes] = field(factory=list)

    def program(self, script: str) -> str:
        """A program that is this script."""
        path = self.folder / "program"
        path.write_text(f"#!/bin/sh\ncd {self.folder}\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def run(self, script: str, *, stdin: bytes = b"", seconds: float = 60) -> Output:
        """What the script wrote."""
        return run_program(
            self.program(script),
            environ={"PATH": os.environ["PATH"], "NAME": "ü"},
            stdin=stdin,
            deadline=Deadline.after(RealClock(), seconds),
            on_stderr=self.errors.append,
        )

    def has_child(self) -> bool:
        """Whether the process whose number the script has noted still runs."""
        try:
            number = (self.folder / "child").read_text(encoding="utf-8").strip()
            return " Z " not in Path(f"/proc/{number}/stat").read_text(encoding="utf-8")
        except FileNotFoundError:
            return False

    def wait_for_its_end(self) -> None:
        """The kernel ends a process that is killed when it next would run."""
        wait_until(lambda: not self.has_child(), "the child has ended")


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def open_files() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def test_it_gets_its_input_and_variables_and_returns_what_it_wrote(runner: Runner) -> None:
    before = open_files()
    output = runner.run('cat; echo "$NAME" >&2; exit 3', stdin=b"{}" * 400_000)
    assert (output.status, output.stdout, output.stderr) == (3, b"{}" * 400_000, "ü\n".encode())
    assert b"".join(runner.errors) == output.stderr
    assert open_files() == before


def test_it_need_not_read_its_input(runner: Runner) -> None:
    assert runner.run("exec <&-; echo done", stdin=b"x" * LONG).stdout == b"done\n"


def test_a_signal_is_its_status(runner: Runner) -> None:
    assert runner.run("kill -15 $$").status == -15


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000 & echo $! > child; wait",
        "exec >&- 2>&- <&-; sleep 1000 & echo $! > child; wait",
        "trap '' TERM INT HUP; sleep 1000 & echo $! > child; while :; do wait; done",
        "sleep 1000 & echo $! > child; while :; do echo noise >&2; done",
    ],
)
def test_what_does_not_end_is_killed_with_its_processes(runner: Runner, script: str) -> None:
    before = open_files()
    with pytest.raises(DidNotEnd):
        runner.run(script, seconds=2)
    runner.wait_for_its_end()
    assert open_files() == before


def test_what_writes_too_much_is_killed_with_its_processes(runner: Runner) -> None:
    with pytest.raises(TooMuchOutput):
        runner.run(f"sleep 1000 & echo $! > child; head -c {LONG} /dev/zero; wait")
    runner.wait_for_its_end()


def test_programs_of_several_threads_do_not_disturb_each_other(runner: Runner) -> None:
    """While one is started, it has copies of the pipes of the others, and theirs are reported as ready for as long."""
    path = runner.program("cat")
    text = b"x" * 100_000

    def run(_number: int) -> Output:
        deadline = Deadline.after(RealClock(), EMERGENCY_STOP_S)
        return run_program(path, environ=os.environ, stdin=text, deadline=deadline, on_stderr=runner.errors.append)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(run, range(80))) == {Output(status=0, stdout=text, stderr=b"")}


def test_as_much_as_is_accepted(runner: Runner) -> None:
    assert len(runner.run(f"head -c {MAX_OUTPUT} /dev/zero").stdout) == MAX_OUTPUT


def test_of_standard_error_the_beginning_is_kept(runner: Runner) -> None:
    output = runner.run("head -c 3000000 /dev/zero >&2; echo end")
    assert (len(output.stderr), output.stdout) == (1 << 16, b"end\n")
    assert b"".join(runner.errors) == output.stderr


def test_a_process_that_it_leaves_behind_is_not_waited_for(runner: Runner) -> None:
    """It may be a daemon that it has started. It still has the standard output open here."""
    output = runner.run("sleep 1000 & echo $! > child; echo done")
    assert output.stdout == b"done\n"
    assert runner.has_child()
    os.kill(int((runner.folder / "child").read_text(encoding="utf-8")), 9)


def test_an_exception_on_the_way_ends_it(runner: Runner) -> None:
    class Stopped(Exception):
        pass

    def stop(text: bytes) -> None:
        raise Stopped(text)

    path = runner.program("sleep 1000 & echo $! > child; echo now >&2; wait")
    with pytest.raises(Stopped):
        run_program(path, environ={}, stdin=b"", deadline=Deadline.after(RealClock(), 60), on_stderr=stop)
    runner.wait_for_its_end()


@pytest.mark.parametrize("mode,content", [(0o644, "#!/bin/sh\n"), (0o755, "#!/no/such/interpreter\n"), (0o755, "text")])
def test_what_cannot_be_executed(runner: Runner, mode: int, content: str) -> None:
    path = runner.folder / "program"
    path.write_text(content, encoding="utf-8")
    path.chmod(mode)
    with pytest.raises(OSError, match=r"denied|No such file|Exec format error"):
        run_program(
            str(path),
            environ={},
            stdin=b"",
            deadline=Deadline.after(RealClock(), 5),
            on_stderr=runner.errors.append,
        )


def test_a_program_that_is_being_written_is_waited_for(runner: Runner, tmp_path: Path) -> None:
    """As while an installer replaces it; here the writer ends at the second attempt."""
    path = tmp_path / "binary"
    path.write_bytes(Path("/bin/true").read_bytes())
    path.chmod(0o755)
    writer = path.open("r+b")
    clock = _ClosingClock(close=writer.close)
    output = run_program(
        str(path), environ={}, stdin=b"", deadline=Deadline.after(clock, 60), on_stderr=runner.errors.append
    )
    assert (output.status, clock.slept_s) == (0, [1.0])


def test_a_program_that_is_written_for_long_is_an_error(runner: Runner, tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(Path("/bin/true").read_bytes())
    path.chmod(0o755)
    clock = _ClosingClock(close=lambda: None)
    with path.open("r+b"), pytest.raises(OSError, match="Text file busy") as failure:
        run_program(
            str(path), environ={}, stdin=b"", deadline=Deadline.after(clock, 60), on_stderr=runner.errors.append
        )
    assert (failure.value.errno, clock.slept_s) == (errno.ETXTBSY, [1.0] * 5)


@define
class _ClosingClock(ManualClock):
    close: Callable[[], None] = lambda: None
    slept_s: list[float] = field(factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.close()
        super().sleep(seconds)
