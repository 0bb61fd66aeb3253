"""The live state of a virtual cluster under the production driver."""

from gavel.simulator.live import Live
from tests.mechanism.world import World


def live_state_of(world: World) -> Live:
    """Return what the service would ask a what-if with now."""
    snapshot = world.store.snapshot()
    return Live(
        jobs=tuple(snapshot.jobs.values()),
        tiers=snapshot.tiers,
        cluster=world.store.cluster(),
        nodes=snapshot.nodes,
        usage=snapshot.usage,
        throughputs=world.store.throughputs(),
        policy=world.settings.policy,
        settings=world.settings,
        last=snapshot.round_records[-1],
        now_s=world.clock.now_s(),
    )
