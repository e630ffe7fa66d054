"""Runs an executable of ours and sends it a signal right after the n-th thing that it does to the world.

``plugin_killer.py N LIST EXECUTABLE SIGNAL [ARGUMENT ...]`` is called as a runtime calls the executable, by
``test_cni_killed`` (SIGKILL) and ``test_cni_locks`` (SIGSTOP), or as a node process is started. N is 0 for never. LIST
is a file that gets a line for every effect, written before the signal. An effect is the return of a C function that
changes something outside the process: a batch of netlink messages, a setting of the kernel, the begin and the end of a
transaction, a lock, a log line, the answer. What only reads is none, and inside a transaction there is none either.
With a server, it is the return of what sends a change, and of what waits for the answer to it.
"""

import os
import signal
import sys
import threading
from types import FrameType

FIRST_MODULE = "netplug_core.flows.cni.call"
EFFECTS = {
    "fsync": {"Folder._written", "Folder.sync"},
    "rename": {"Folder.replace", "Folder.link", "_move"},
    "rmdir": {"_remove_if_empty"},
    "symlink": {"Folder.link"},
    "execute": {"SqliteDatastore.commit", "SqliteDatastore._commit_transaction"},
    "fcntl": {"FileLocks.try_lock"},
    "flock": {"NetworkFiles._try_lock"},
    "close": {"_Pipes.serve"},
    "link": {"Folder.create"},
    "open": {"Folder._new_file"},
    "pidfd_open": {"_Pipes.serve"},
    "read": {"_read"},
    "send": {"NetlinkSocket.send"},
    "sendall": {"serve_call"},
    "unlink": {"remove_file", "Folder.remove", "_unlink"},
    "write": {"write_sysctl", "_write_to_stderr", "LogFile._write", "serve", "_Pipes._write"},
}
# What sends a netlink message to read. The controller of the packet filter does so now and then, beside any call.
NETLINK_READER = "find_generation"
# What speaks to a server, and has had an effect unless it was to GET something.
SERVER_CALLS = {"EtcdClient.write", "ApiConnection.send", "ApiClient.send"}


def is_read(frame: FrameType) -> bool:
    """Whether the sender of a netlink message only asks for something."""
    caller: FrameType | None = frame
    for _ in range(4):
        caller = None if caller is None else caller.f_back
        if caller is not None and caller.f_code.co_name == NETLINK_READER:
            return True
    return False


def request_method(frame: FrameType) -> object:
    """The method of a request."""
    method: object = getattr(frame.f_locals.get("request"), "method", None)
    return method or frame.f_locals.get("method")


def is_effect(frame: FrameType, event: str, function: object) -> bool:
    """Whether what has just returned changes something outside the process."""
    name = frame.f_code.co_qualname
    if event == "return":
        return name in SERVER_CALLS and request_method(frame) != "GET"
    if event != "c_return" or name not in EFFECTS.get(getattr(function, "__name__", ""), ()):
        return False
    return name != "NetlinkSocket.send" or not is_read(frame)


def main() -> None:
    number, path, executable = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    sent = signal.Signals[sys.argv[4]]
    listed = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(executable, encoding="utf-8") as file:
        code = compile(file.read(), executable, "exec")
    seen = 0

    def count(frame: FrameType, event: str, function: object) -> None:
        nonlocal seen
        if not is_effect(frame, event, function):
            return
        name = frame.f_code.co_qualname
        seen += 1
        sys.setprofile(None)
        os.write(listed, f"{name}\n".encode())
        if seen == number:
            os.kill(os.getpid(), sent)
        sys.setprofile(count)

    def begin(event: str, details: tuple[object, ...]) -> None:
        # The flows of ADD and DEL both load this, and nothing has an effect before: counting begins no earlier, because
        # it would make all that loading half as long again.
        if event == "import" and details[0] == FIRST_MODULE:
            threading.setprofile(count)
            sys.setprofile(count)

    sys.argv[:] = [executable, *sys.argv[5:]]
    sys.addaudithook(begin)
    exec(code, {"__name__": "__main__"})  # noqa: S102  the executable, as the interpreter itself would run it


main()
