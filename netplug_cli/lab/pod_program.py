"""What a pod of ``connectivity test`` runs: ``serve PORT`` answers, ``ask QUESTIONS`` asks and writes the answers.

It is sent as text to a pod whose image has Python and perhaps nothing else, of any release. So it needs the standard
library alone. A question is an address, a port, and ``echo`` if the answer has to be what was sent; otherwise any
answer counts, a refusal too: it has come back all the same.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

_TIMEOUT_S, _ATTEMPTS = 3.0, 3
_TOKEN_LENGTH = 16
_AT_ONCE = 8


def serve(port: int) -> None:
    """Send back what each connection sends, for ever."""
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    with socket.create_server(("", port), family=family, backlog=128, dualstack_ipv6=is_dual) as listening:
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection: socket.socket) -> None:
    with connection:
        connection.settimeout(_TIMEOUT_S)
        try:
            connection.sendall(connection.recv(_TOKEN_LENGTH))
        except OSError:
            return  # who asks sees it


def ask(questions: list[tuple[str, int, str]]) -> list[float | str]:
    """What comes of each question: how many milliseconds an answer took, or why there was none."""
    answers: list[float | str] = [""] * len(questions)
    numbers = iter(range(len(questions)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            answers[number] = _ask_again(*questions[number])

    threads = [threading.Thread(target=work) for _ in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _ask_again(address: str, port: int, kind: str) -> float | str:
    failure = ""
    for _ in range(_ATTEMPTS):
        began = time.monotonic()
        try:
            failure = _ask(address, port, is_echo=kind == "echo")
        except ConnectionRefusedError:
            failure = "" if kind != "echo" else "it refuses the connection"
        except TimeoutError:
            failure = "no answer"
        except OSError as error:
            failure = error.strerror or str(error)
        if not failure:
            return round((time.monotonic() - began) * 1e3, 3)
    return failure


def _ask(address: str, port: int, *, is_echo: bool) -> str:
    with socket.create_connection((address, port), timeout=_TIMEOUT_S) as connection:
        if not is_echo:
            return ""
        token = os.urandom(_TOKEN_LENGTH)
        connection.sendall(token)
        received = b""
        while len(received) < len(token) and (part := connection.recv(_TOKEN_LENGTH)):
            received += part
        return "" if received == token else "another program answers there"


def main(words: list[str]) -> None:
    """Do what the words say."""
    if words[0] == "serve":
        serve(int(words[1]))
    text = json.dumps(ask(json.loads(words[1])), separators=(",", ":"))
    with open(os.environ["RESULT_FILE"], "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
