"""The reason for which a policy's answer is not in force is stored with the round."""

from dataclasses import replace
from types import SimpleNamespace

from gavel.store import codec
from gavel.store.samples import round_record
from gavel.types import Fallback


def test_the_reason_for_a_fallback_is_kept_with_the_round() -> None:
    kept = round_record(1, "j1")
    why = Fallback(policy="mine", error="mine raised SystemExit: 3", since_s=12.5, instead="equal share")
    for fallback in (None, why):
        record = replace(kept, allocation=replace(kept.allocation, fallback=fallback))
        plan, decision = codec.pack_round(record)
        row = SimpleNamespace(round_index=1, plan=plan, decision=decision)
        assert codec.record(row).allocation.fallback == fallback
