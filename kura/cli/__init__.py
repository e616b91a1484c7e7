"""The command line: `kura`. Each command imports what it needs when it runs, so that `kura mcp` starts quickly."""


def main() -> None:
    """Run the command that the process was started with, and exit with its code."""
    from kura.cli.root import run

    run()
