"""`python -m gavel.faults`: the same as `gavel-faults`."""

from gavel.faults.program import app

app()
