"""`corver-host mcp` with the protocol's own Python client."""

import asyncio
import json
import pathlib
import subprocess
import sys
import unittest

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

# The wheel puts the program beside its interpreter.
PROGRAM = str(pathlib.Path(sys.executable).with_name("corver-host"))
TEXT = "Zusturk Giseth was born in Old Riavuck."


async def call(*calls):
    """Returns the names of the tools, and the result of each call."""
    async with stdio_client(StdioServerParameters(command=PROGRAM, args=["mcp"])) as streams:
        async with ClientSession(*streams) as session:
            await session.initialize()
            tools = await session.list_tools()
            results = [await session.call_tool(name, arguments) for name, arguments in calls]
            return [tool.name for tool in tools.tools], results


class Mcp(unittest.TestCase):
    def test_tools_return_what_the_commands_print(self):
        names, (checked, counted, found, refused) = asyncio.run(
            call(
                ("check", {"text": TEXT}),
                ("count", {"query": "Zusturk Giseth"}),
                ("find_passages", {"query": "Zusturk Giseth", "limit": 1}),
                ("count", {"query": ""}),
            )
        )
        self.assertEqual(names, ["check", "count", "find_passages"])
        command = subprocess.run([PROGRAM, "check", "--json", "--text", TEXT], capture_output=True, text=True)
        self.assertEqual(json.loads(checked.content[0].text), json.loads(command.stdout))
        self.assertGreater(json.loads(counted.content[0].text)["occurrences"], 0)
        [passage] = json.loads(found.content[0].text)["passages"]
        self.assertIn("Zusturk Giseth", "".join(span["text"] for span in passage["spans"]))
        self.assertIn("empty", refused.content[0].text)


if __name__ == "__main__":
    unittest.main()
