"""Lets `python -m gavel.cli` run the command `gavel`."""

from gavel.cli import main

main()
