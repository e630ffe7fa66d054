"""A program of its own: carries connections from a socket that it inherits to an address that it can reach.

``relays`` starts it with a socket that was opened inside a lab's node, for a server outside: a socket stays in the
namespace in which it was opened, whatever namespace its process is in. It imports nothing of netplug.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress

__all__ = ["main"]

_CHUNK = 65536


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    with suppress(OSError):
        target.write_eof()


async def _serve(listener: socket.socket, host: str, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, onward = await asyncio.open_connection(host, port)
        except OSError as error:
            sys.stderr.write(f"{host} port {port}: {error}\n")
            writer.transport.abort()  # as the server itself would: the client sees a connection that is cut
            return
        await asyncio.gather(_copy(reader, onward), _copy(there, writer))
        onward.close()
        writer.close()

    server = await asyncio.start_server(connected, sock=listener)
    async with server:
        await server.serve_forever()


def main(descriptor: int, host: str, port: int) -> None:
    """Carry until the process is ended."""
    asyncio.run(_serve(socket.socket(fileno=descriptor), host, port))


if __name__ == "__main__":
    # The last argument says whose it is: it is how the lab knows its processes.
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
