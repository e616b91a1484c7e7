"""`python -m local` serves MCP on standard streams, straight from a checkout; options are those of `kura mcp`."""

import sys

from kura.cli import main

sys.argv[1:1] = ["mcp"]
main()
