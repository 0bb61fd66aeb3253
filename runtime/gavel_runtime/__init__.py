"""The library inside a job: which steps to do, when to checkpoint, how the ranks of a gang agree.

    from gavel_runtime import job

    for step in job.steps(checkpoint=save, restore=load):
        train(step)
    print("trained")          # reached only when the training is complete

Standard library only. It talks to the service through files (docs/gang-protocol.md), so a job runs on when the service
is down, and stops by itself when its lease is over. Outside Gavel the same script runs from 0 to `total`.

A job may steer tasks of its own by ephemeral resources (docs/ephemeral-resources.md):

    job.set_resource("near", 2)                                                   # on this rank's node
    players = [job.launch(["python", "play.py"], requires={"near": 1}) for _ in range(2)]
    codes = [player.wait() for player in players]
"""

from gavel_runtime._errors import CannotRunHere
from gavel_runtime._hub import GangError
from gavel_runtime._job import Job, job
from gavel_runtime._loop import Loop
from gavel_runtime._samples import MicroBatch
from gavel_runtime._tasks import Task

__all__ = ["CannotRunHere", "GangError", "Job", "Loop", "MicroBatch", "Task", "job"]
