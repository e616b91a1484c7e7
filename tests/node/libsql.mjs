// An independent client of libSQL servers: runs the statements that it is given, and prints what they bring.
import { createClient } from "@libsql/client/http";

const { url, token, statements } = JSON.parse(process.argv[2]);
const client = createClient({ url, authToken: token, intMode: "bigint" });
const shown = (value) =>
  typeof value === "bigint" ? Number(value) : value instanceof ArrayBuffer ? Buffer.from(value).toString("hex") : value;
const results = await client.batch(statements, "read");
console.log(JSON.stringify(results.map(({ rows }) => rows.map((row) => Array.from(row, shown)))));
client.close();
