"""httpx and aiohttp inside `map`: many requests at a time, results in order, one session for all.

    pip install 'asyncdata[web]' aiohttp && python examples/web/03_clients.py

The connections of a client belong to the event loop on which they were made, so the pipeline runs on the loop that
makes and closes the client: `Options(placement="current")`.
"""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import asyncdata as ad

HERE = ad.Options(placement="current")


async def double(request):
    """Stand in for another service, which refuses one number."""
    number = request.path_params["number"]
    await asyncio.sleep(0.01 if number % 2 else 0.02)
    return JSONResponse({"double": 2 * number}, status_code=404 if number == 13 else 200)


async def by_httpx(url):
    """Request 40 numbers with httpx, eight at a time; drop those that fail."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:

        async def fetch(number):
            reply = await http.get(f"/double/{number}")
            return reply.raise_for_status().json()["double"]

        ds = ad.Dataset.range(40).map(fetch, num_parallel_calls=8).ignore_errors()
        return [number async for number in ds.with_options(HERE)]


async def by_aiohttp(url):
    """Request the same numbers with aiohttp."""
    async with aiohttp.ClientSession(url, raise_for_status=True) as http:

        async def fetch(number):
            async with http.get(f"/double/{number}") as reply:
                return (await reply.json())["double"]

        ds = ad.Dataset.range(40).map(fetch, num_parallel_calls=8).ignore_errors()
        return [number async for number in ds.with_options(HERE)]


async def main():
    """Run the service, and both clients of it."""
    app = Starlette(routes=[Route("/double/{number:int}", double)])
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([listening]))
        right = [2 * number for number in range(40) if number != 13]
        print("httpx:", await by_httpx(url) == right)
        print("aiohttp:", await by_aiohttp(url) == right)
        server.should_exit = True


if __name__ == "__main__":
    asyncio.run(main())
