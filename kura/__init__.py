"""Kura serves named knowledge bases, indexed from files, to AI agents over MCP."""

__version__ = "0.1.0"
