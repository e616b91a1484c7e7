// The TypeScript SDK of the first generation, which most clients in use are built on; it knows the handshake alone.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { asked, report } from "./operations.mjs";

const { url, command } = asked;
const transport = url
  ? new StreamableHTTPClientTransport(new URL(url))
  : new StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env, stderr: "inherit" });
let negotiated;
const tell = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => {
  negotiated = version;
  tell?.(version);
};
const client = new Client({ name: "kura-tests", version: "0" });
await client.connect(transport);
await report(client, () => negotiated);
