"""The scheduler's process: `python -m gavel.daemon.scheduling FD PARENT_PID`, as child.py starts it.

It leads or stands by until its parent asks it to stop. Messages are pickled: safe between these two processes, as the
parent started the child and no other process holds an end of the socket.
"""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection

from gavel.child_processes import die_with
from gavel.clock import SystemClock
from gavel.daemon.background import Periodic, in_background
from gavel.daemon.child import Message, Order, Refusal
from gavel.daemon.opening import look_for_cycles_rarely, open_doorbell, open_store
from gavel.daemon.parts import Parts
from gavel.daemon.scheduler import Scheduler
from gavel.errors import GavelError
from gavel.freed_memory import EVERY_S, give_back
from gavel.logs import claim_log, configure_logs


def main(descriptor: int, parent_pid: int) -> int:
    """Schedule until the parent asks to stop, then return 0; return 1 if it could not start, with a `Refusal` sent."""
    die_with(parent_pid)
    os.set_inheritable(descriptor, False)  # gangs outlive this process: they must not keep its end open
    with Connection(descriptor) as parent, ExitStack() as stack:

        def tell(message: Message) -> None:
            with suppress(OSError):  # the parent has ended, and this process ends with it
                parent.send(message)

        try:
            scheduler = _open(parent.recv(), tell, stack)
            threading.Thread(target=_stop_when_told, args=(parent, scheduler), daemon=True).start()
            scheduler.run()
        except (GavelError, OSError) as error:
            tell(Refusal(reason=str(error)))
            return 1
    return 0


def _open(order: Order, tell: Callable[[Message], None], stack: ExitStack) -> Scheduler:
    look_for_cycles_rarely()
    settings, clock = order.settings, SystemClock()
    configure_logs(stack.enter_context(claim_log(settings.state_dir, "scheduler")))
    stack.enter_context(in_background([Periodic(give_back, EVERY_S)]))
    doorbell = open_doorbell(settings, stack)
    store = open_store(settings, stack, clock.wake)
    return Scheduler(Parts(settings=settings, clock=clock, store=store, url=order.url, doorbell=doorbell), tell)


def _stop_when_told(parent: "Connection[Message, object]", scheduler: Scheduler) -> None:
    with suppress(EOFError, OSError):
        parent.recv()
    scheduler.stop()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
