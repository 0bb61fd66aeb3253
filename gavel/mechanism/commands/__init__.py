"""Commands from the API to the scheduler: a table of the kinds of commands, and a handler for each."""
