"""Errors that a program may raise to say something to the service."""


class CannotRunHere(RuntimeError):
    """The job does not fit the accelerator type that it runs on; raised by `job.cannot_run_here(reason)`."""


class NotSaved(Exception):
    """A checkpoint could not be written, and the program goes on without it: it was told."""
