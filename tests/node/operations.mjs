// What both TypeScript clients do with a connected client: list the tools, make the calls, and print what came back.
import { readFileSync } from "node:fs";

/** The request that was put on standard input: where the server is, and which calls to make. */
export const asked = JSON.parse(readFileSync(0, "utf8"));

export async function report(client, protocolVersion) {
  const { name, version } = client.getServerVersion();
  const connect = { protocolVersion: protocolVersion(), server: { name, version }, instructions: client.getInstructions() };
  const { tools } = await client.listTools();
  const calls = {};
  for (const { title, tool, arguments: given } of asked.calls) {
    calls[title] = await call(client, tool, given);
  }
  await client.close();
  console.log(JSON.stringify({ connect, tools, calls }));
}

async function call(client, name, given) {
  try {
    const { isError, content, structuredContent } = await client.callTool({ name, arguments: given });
    return { isError: isError ?? false, content, structuredContent };
  } catch (error) {
    return { code: error.code, message: error.message.replace(/^MCP error -?\d+: /, "") };
  }
}
