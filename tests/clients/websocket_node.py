"""websocket_node.py: a WebSocket node that echoes; prints its port and serves until stdin ends."""

import asyncio
import sys

import websockets.asyncio.server


async def echo(connection):
    """Gives back every message."""
    async for message in connection:
        await connection.send(message)


async def main():
    """Serves on a free port."""
    async with websockets.asyncio.server.serve(echo, "127.0.0.1", 0, max_size=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
