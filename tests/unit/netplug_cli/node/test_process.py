"""The whole process in a thread: it serves until it is asked to end."""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from threading import Event, Thread

import pytest

from netplug_cli.node import process as process_module
from netplug_cli.node.listening import listen
from netplug_cli.node.process import NodeProcess
from netplug_cli.runtime.controllers import Runtime
from netplug_cli.runtime.signals import StopSignals
from netplug_core.cni.wire import TAKEN, WireReply, WireRequest, encode_request, parse_reply
from netplug_core.testing.clock import RealClock
from tests.harness.node_process import ask, connect, receive_all
from tests.harness.node_server import REPLY, REQUEST, Lines, busy_reply
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until


class Running:
    """A node process whose calls are answered by a function, in a thread of this process."""

    def __init__(self, path: Path, answer: Callable[[WireRequest, int | None], WireReply]) -> None:
        self.path, self.log, self.status = str(path), Lines(), -1
        self._stop, self._wakeup = socket.socketpair()
        self._process = NodeProcess(
            answer=answer,
            refuse=busy_reply,
            tasks=Runtime((), clock=RealClock(), log=self.log),
            observe=lambda _parts: nullcontext(lambda: None),
            log=self.log,
            workers=1,
            queue=1,
        )
        listener = listen(self.path)
        self._thread = Thread(target=lambda: setattr(self, "status", self._process.run(listener, self._wakeup)))
        self._thread.start()

    def stop(self) -> None:
        self._stop.send(b"\0")

    def wait(self) -> int:
        self._thread.join(EMERGENCY_STOP_S)
        self._stop.close()
        self._wakeup.close()
        return self.status


def test_it_serves_until_it_is_asked_to_end(tmp_path: Path) -> None:
    running = Running(tmp_path / "node.sock", lambda _request, _namespace: REPLY)
    assert ask(running.path, REQUEST) == REPLY
    running.stop()
    assert running.wait() == 0
    assert not os.path.exists(running.path)
    assert running.log.texts == [
        f"INFO the node process serves socket={running.path} workers=1",
        "INFO the node process has ended",
    ]


def test_what_has_begun_is_finished_and_what_waits_is_given_back(tmp_path: Path) -> None:
    end = Event()

    def answer(_request: WireRequest, _namespace: int | None) -> WireReply:
        end.wait(60)
        return REPLY

    running = Running(tmp_path / "node.sock", answer)
    data = encode_request(REQUEST, patience_s=60)
    with closing(connect(running.path)) as begun, closing(connect(running.path)) as waiting:
        begun.sendall(data)
        assert begun.recv(1) == TAKEN
        waiting.sendall(data)
        running.stop()
        assert receive_all(waiting) == b""
        end.set()
        assert parse_reply(TAKEN + receive_all(begun)) == REPLY
    assert running.wait() == 0


def test_a_call_that_does_not_end_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = Event()

    def answer(_request: WireRequest, _namespace: int | None) -> WireReply:
        end.wait(60)
        return REPLY

    monkeypatch.setattr(process_module, "STOP_S", 0.01)
    running = Running(tmp_path / "node.sock", answer)
    with closing(connect(running.path)) as begun:
        begun.sendall(encode_request(REQUEST, patience_s=60))
        assert begun.recv(1) == TAKEN
        running.stop()
        assert running.wait() == 1
        assert "ERROR calls have not ended within 0.01 s calls=1" in running.log.texts
        end.set()


def test_a_signal_wakes_the_server_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        with pytest.raises(BlockingIOError):
            signals.wakeup.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: signals.wakeup.recv(1) == bytes([signal.SIGTERM]), "the signal is received")
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_second_signal_ends_the_process() -> None:
    child = os.fork()
    if not child:
        with StopSignals():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + signal.SIGTERM
