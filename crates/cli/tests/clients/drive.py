"""Drives `lariat mcp` with the protocol's own client: drive.py PORT DIRECTORY.

The server runs in a sandbox that this program is not in; behind the port its standard
input and output are passed on. `drive.py --bridge PORT` is the server as the client
starts it.
"""

import asyncio
import json
import os
import shutil
import socket
import sys
import threading

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


def bridge(port):
    with socket.create_connection(("127.0.0.1", int(port))) as stream:
        there, back = stream.makefile("wb", buffering=0), stream.makefile("rb", buffering=0)
        told, said = open(0, "rb", buffering=0), open(1, "wb", buffering=0)
        threading.Thread(target=shutil.copyfileobj, args=(back, said), daemon=True).start()
        shutil.copyfileobj(told, there)


async def main(port, place):
    server = StdioServerParameters(command=sys.executable, args=[__file__, "--bridge", port], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools

        async def call(name, **arguments):
            answer = await session.call_tool(name, arguments)
            text = "".join(part.text for part in answer.content if part.type == "text")
            failed = getattr(answer, "isError", None)
            if failed is None:
                failed = getattr(answer, "is_error", False)
            return text, bool(failed)

        assert json.loads((await call("list"))[0])["sessions"] == []
        launched = json.loads((await call("launch", agent="claude", cwd=place))[0])
        refused = (await call("launch", agent="claude", cwd=place))[1]
        status = json.loads((await call("status", target=launched["handle"]))[0])
        listed = json.loads((await call("list"))[0])
        assert [s["native_id"] for s in listed["sessions"]] == [launched["native_id"]], listed
        stopped, failed = await call("stop", target=launched["handle"])
        assert not failed, stopped
        told = {"tools": [t.name for t in tools], "native_id": launched["native_id"], "refused": refused}
        told["status"] = (status.get("session") or status)["status"]
        print(json.dumps(told))


if sys.argv[1] == "--bridge":
    bridge(sys.argv[2])
else:
    asyncio.run(main(*sys.argv[1:]))
