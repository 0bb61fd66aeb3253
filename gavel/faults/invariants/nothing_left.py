"""I6, promise P6: nothing outlives its lease: no gang, no reservation, no resource of a gang."""

from gavel.faults.invariants.base import Evidence, Invariant

MARGIN_S = 1.5  # clocks that drift, and the time until a signal is sent


class NothingLeft(Invariant):
    """Ranks end with their lease and its grace, and at the end nothing is held."""

    name = "I6_nothing_left"

    def after_change(self, evidence: Evidence) -> None:
        """Check that no ranks run beyond the lease that their node knows, and the grace after it."""
        for node, shard in evidence.running():
            late_s = node.clock.boottime_s() - shard.expires_s - shard.launch.lease_grace_s
            if late_s > MARGIN_S and evidence.schedule.now_s >= shard.excused_until_s:
                raise self.fail(f"{node.name} runs {shard.launch.key} {late_s:.1f} s after its lease and grace")

    def at_end(self, evidence: Evidence) -> None:
        """Check that nodes and network hold nothing of gangs any more."""
        left = [shard.launch.key for node in evidence.nodes for shard in node.shards.values()]
        if left:
            raise self.fail(f"nodes still keep {left}")
        if groups := [name for network in evidence.networks.values() for name in network.held_groups()]:
            raise self.fail(f"still reserved are {sorted(groups)}")
