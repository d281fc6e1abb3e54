"""websocket_client.py URL: WebSocket connections to an echoing node through a director."""

import asyncio
import random
import sys

import websockets.asyncio.client

URL = sys.argv[1]


async def talk(number):
    """One connection: text, binary of many sizes, ping, and a clean close."""
    source = random.Random(number)
    async with websockets.asyncio.client.connect(URL, max_size=None, open_timeout=20, compression=None) as connection:
        await connection.send("grüße")
        assert await connection.recv() == "grüße"
        for size in (0, 1, 125, 126, 65_535, 65_536, 1_000_000):
            message = source.randbytes(size)
            await connection.send(message)
            assert await connection.recv() == message, size
        await (await connection.ping())
    assert connection.close_code == 1000, connection.close_code


async def main():
    """Ten at once."""
    await asyncio.gather(*(talk(number) for number in range(10)))
    print("ok websocket")


asyncio.run(main())
