"""A relay that passes every answer of a server on later: ``python -m benchmarks.delay HOST PORT SECONDS``.

It prints the port on which it listens. The order of the bytes stays; what arrives while others wait is not delayed
longer, as on a longer way to the server.
"""

from __future__ import annotations

import asyncio
import sys

_CHUNK = 1 << 16


async def _relay(host: str, port: int, delay_s: float) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(host, port)
        await asyncio.gather(_pass_on(reader, to_server, 0.0), _pass_on(from_server, writer, delay_s))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    while chunk := await reader.read(_CHUNK):
        loop.call_later(delay_s, writer.write, chunk)
    loop.call_later(delay_s, writer.close)


if __name__ == "__main__":
    asyncio.run(_relay(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
