// The TypeScript client of the second generation; it speaks both eras.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { asked, report } from "./operations.mjs";

const { url, command } = asked;
const transport = url
  ? new StreamableHTTPClientTransport(new URL(url))
  : new StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env, stderr: "inherit" });
const client = new Client(
  { name: "kura-tests", version: "0" },
  { versionNegotiation: { mode: asked.era === "2026-07-28" ? { pin: asked.era } : asked.era } },
);
await client.connect(transport);
await report(client, () => client.getNegotiatedProtocolVersion());
