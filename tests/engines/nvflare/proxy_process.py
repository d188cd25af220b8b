"""A web proxy that connects its clients to other hosts, and prints a line for each connection."""

from __future__ import annotations

import asyncio
import sys


async def pump(reader, writer):
    try:
        while piece := await reader.read(2**16):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def serve(reader, writer):
    line, *_ = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    method, target, _ = line.split()
    host, _, port = target.rpartition(":")
    print(method, target, flush=True)
    there_reader, there_writer = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
