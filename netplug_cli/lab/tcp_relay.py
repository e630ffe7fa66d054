"""A program: relays the connections of a socket that it inherits to an address that it can reach.

``relays`` starts it with a socket that was opened inside a lab's node, for a server outside. A socket stays in the
namespace in which it was opened, so this process serves the node from outside. It imports nothing of netplug.
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
            server_reader, server_writer = await asyncio.open_connection(host, port)
        except OSError as error:
            sys.stderr.write(f"{host} port {port}: {error}\n")
            writer.transport.abort()  # the client sees a cut connection, as from the server itself
            return
        await asyncio.gather(_copy(reader, server_writer), _copy(server_reader, writer))
        server_writer.close()
        writer.close()

    server = await asyncio.start_server(connected, sock=listener)
    async with server:
        await server.serve_forever()


def main(descriptor: int, host: str, port: int) -> None:
    """Relay until the process is killed."""
    asyncio.run(_serve(socket.socket(fileno=descriptor), host, port))


if __name__ == "__main__":
    # The last argument is the lab's folder; the lab recognises its processes by it.
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
