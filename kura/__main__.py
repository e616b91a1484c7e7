"""`python -m kura` is `kura`."""

from kura.cli import main

main()
