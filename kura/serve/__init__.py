"""The edge: MCP, REST and the page, from one application."""
