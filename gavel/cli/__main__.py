"""`python -m gavel.cli` is `gavel`."""

from gavel.cli import main

main()
