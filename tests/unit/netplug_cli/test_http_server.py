"""Pages over HTTP: what is answered, and that a client that hangs keeps no other waiting."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, RemoteDisconnected
from threading import Event
from typing import NoReturn

from netplug_cli.http_server import MAX_REQUESTS, Page, Pages, PageServer
from netplug_cli.loopback import listen_to_this_machine
from tests.harness.node_server import Lines
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until


@contextmanager
def serving(pages: Pages, log: Lines | None = None) -> Iterator[int]:
    """The port at which pages are served, for as long as the context lasts."""
    listening = listen_to_this_machine(0)
    server = PageServer(listening, pages, log or Lines())
    port: int = listening.getsockname()[1]
    server.start()
    try:
        yield port
    finally:
        server.stop()


def get(port: int, path: str) -> tuple[int, str | None, bytes]:
    """Status, media type and body of a page."""
    connection = HTTPConnection("127.0.0.1", port, timeout=EMERGENCY_STOP_S)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.headers["Content-Type"], reply.read()
    finally:
        connection.close()


def is_answered(port: int, path: str) -> bool:
    """Whether a page is answered, as a probe asks: a connection that is closed is a failure of one probe."""
    try:
        return get(port, path)[0] == HTTPStatus.OK
    except (RemoteDisconnected, ConnectionResetError):
        return False


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=EMERGENCY_STOP_S)


OK = {"/livez": lambda: Page(body=b"ok\n")}


def test_a_page_is_made_when_it_is_asked_for() -> None:
    bodies = [b"second", b"first"]
    pages = {"/page": lambda: Page(body=bodies.pop(), media_type="text/x", status=HTTPStatus.ACCEPTED)}
    with serving(pages) as port:
        assert get(port, "/page") == (202, "text/x", b"first")
        assert get(port, "/page?name=value") == (202, "text/x", b"second")


def test_another_path_is_answered_with_the_paths_that_there_are() -> None:
    with serving(OK) as port:
        assert get(port, "/nothing") == (404, "text/plain; charset=utf-8", b"/livez\n")


def test_a_page_that_cannot_be_made_is_logged_and_the_next_one_is() -> None:
    log = Lines()

    def make() -> NoReturn:
        raise ZeroDivisionError

    with serving({"/bad": make, **OK}, log) as port:
        assert get(port, "/bad")[0] == 500
        assert log.texts[0].startswith("ERROR /bad could not be made\nTraceback ")
        assert get(port, "/livez")[0] == 200


def test_clients_that_send_nothing_keep_no_other_waiting() -> None:
    with serving(OK) as port, ExitStack() as stack:
        silent = [stack.enter_context(connect(port)) for _ in range(3 * MAX_REQUESTS)]
        wait_until(lambda: is_answered(port, "/livez"), "those that were cut off make room")
        assert silent[0].recv(1) == b"", "the oldest is cut off"


def test_pages_that_are_never_made_do_not_make_ever_more_threads() -> None:
    end, asked = Event(), list[int]()

    def make() -> Page:
        asked.append(1)
        end.wait(60)
        return Page(body=b"")

    with serving({"/slow": make}) as port, ExitStack() as stack:
        for number in range(1, 2 * MAX_REQUESTS + 1):
            client = stack.enter_context(connect(port))
            client.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
            wait_until(lambda number=number: len(asked) == number, "it is being made")  # type: ignore[misc]
        beyond = stack.enter_context(connect(port))
        assert beyond.recv(1) == b""
        end.set()
        assert len(asked) == 2 * MAX_REQUESTS


def test_a_client_that_goes_away_is_no_fault() -> None:
    log, asked = Lines(), Event()
    gone = Event()

    def make() -> Page:
        asked.set()
        gone.wait(60)
        return Page(body=b"x" * 10_000_000)

    with serving({"/large": make, **OK}, log) as port:
        with connect(port) as client:
            client.sendall(b"GET /large HTTP/1.0\r\n\r\n")
            assert asked.wait(60)
        gone.set()
        assert get(port, "/livez")[0] == 200
    assert log.texts == []
