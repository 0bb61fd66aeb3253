"""What must hold after each event of a run: one file for each invariant, by its name.

`base` has what an invariant is given, `registry` all of them. A `Violation` ends the run and prints its seed.
"""
