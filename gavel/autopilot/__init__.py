"""Chooses the parts of the scheduler for a goal that an operator states, by simulating what each choice would do."""
