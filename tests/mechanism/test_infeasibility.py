"""A gang that does not fit an accelerator type marks that, and its job goes on elsewhere without losing a retry."""

import subprocess
import sys
from dataclasses import replace

import pytest

from gavel.mechanism.explaining.explanation import State, explain
from gavel.mechanism.jobs.infeasibility import (
    KILLED_FOR_MEMORY,
    MARKS_PER_USER_MAX,
    evidence_of,
    is_of_kernel,
    marked,
    marks_of,
    ruled_out,
)
from gavel.simulator.cluster import program
from gavel.types import GangExit, GangOutcome, GangState, InfeasibleType, JobState, OperationState, Reason
from tests.builders import a_job
from tests.mechanism.world import World, a_cluster_of_nodes

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 15.77 GiB."
STATED = {"throughput_steps_per_s": {"fast": 10.0, "slow": 5.0}}


def a_failure(*lines: str, code: int = 1, message: str = "rank 0 ended with exit code 1") -> GangExit:
    return GangExit(outcome=GangOutcome.EXITED, exit_code=code, message=message, log_tail="\n".join(lines))


def a_mark(**over: object) -> InfeasibleType:
    fields = {"user": "ann", "kind": "mlp", "scale_factor": 1, "accelerator_type": "fast", "job_id": "j", "at_s": 1.0}
    return InfeasibleType(**{"evidence": OUT_OF_MEMORY, **fields, **over})


@pytest.mark.parametrize(
    "line",
    [
        OUT_OF_MEMORY,
        "RuntimeError: CUDA error: out of memory",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB.",
        "RuntimeError: CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184",
        "2026-01-01 W bfc_allocator.cc:487] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB",
        "tensorflow.errors.ResourceExhaustedError: OOM when allocating tensor with shape[64,1024]",
        "gavel_runtime._errors.CannotRunHere: needs bfloat16",
        "MemoryError",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.90 GiB in all)",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "hipErrorOutOfMemory: out of memory",
        "RuntimeError: MPS backend out of memory (MPS allocated: 18.00 GB, other allocations: 1.00 MB)",
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 20.00 GiB.",
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.5G of 15.7G",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 0 bytes).",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB for an array with shape (1024, 104857)",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: you tried to",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] data. DefaultCPUAllocator: not enough memory: you tried to",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_the_messages_of_libraries_are_evidence(line: str) -> None:
    assert evidence_of(a_failure("step 3", line, "Traceback ends")) == line[:200]


def test_a_kill_of_the_kernel_is_evidence_and_a_success_is_none() -> None:
    message = "rank 0 ended with signal 9, killed by the kernel, which was out of memory"
    assert evidence_of(a_failure(code=-9, message=message)) == message
    assert evidence_of(a_failure(OUT_OF_MEMORY, code=0)) == ""
    assert evidence_of(a_failure("ValueError: bad shape", "no memory of this")) == ""
    assert evidence_of(GangExit(outcome=GangOutcome.LOST, exit_code=1, log_tail=OUT_OF_MEMORY)) == ""


def test_what_a_program_prints_is_bounded_and_harmless() -> None:
    evidence = evidence_of(a_failure("\x1b[31mCUDA out of memory\x00\u202e" + "x" * 100_000))
    assert len(evidence) <= 200 and evidence.isprintable()


def test_the_last_line_with_a_sign_is_the_evidence() -> None:
    """The message of the end comes after all lines of the log."""
    assert evidence_of(a_failure("MemoryError", "  CUDA out of memory: 2  ", "bye")) == "CUDA out of memory: 2"
    killed = f"rank 0 was {KILLED_FOR_MEMORY}"
    assert evidence_of(a_failure("MemoryError", message=killed)) == killed
    assert is_of_kernel(killed) and not is_of_kernel("MemoryError")


def test_only_the_first_2000_characters_of_a_line_are_looked_at() -> None:
    sign = "CUDA out of memory"
    room = " " * (2000 - len(sign))
    assert evidence_of(a_failure(room + sign + ", and more")) == sign
    assert evidence_of(a_failure(f"{room} {sign}")) == ""
    assert evidence_of(a_failure(f"a\x00b\t{sign}" + "x" * 300)) == f"a b {sign}" + "x" * (200 - len(f"a b {sign}"))


def test_a_program_says_that_it_cannot_run_here() -> None:
    script = "from gavel_runtime import job; job.cannot_run_here('needs\\nbfloat16')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert evidence_of(a_failure(*done.stderr.splitlines())).endswith("CannotRunHere: needs bfloat16")


def test_a_mark_is_of_one_user_kind_and_size_and_a_user_has_few() -> None:
    others = [{"spec": {"user": "bob"}}, {"spec": {"kind": "cnn"}}, {"spec": {"scale_factor": 2}}]
    jobs = ruled_out([a_job(), *(a_job(**each) for each in others)], [a_mark()])
    assert [job.spec.accelerator_types for job in jobs] == [("!fast",), (), (), ()]
    marks: tuple[InfeasibleType, ...] = (a_mark(user="bob"),)
    for index in range(MARKS_PER_USER_MAX + 5):
        marks = marked(marks, a_mark(kind=f"k{index}", at_s=float(index)))
    assert len(marks) == MARKS_PER_USER_MAX + 1 and marks[0].user == "bob"
    assert marked(marks, marks[-1]) == marks


def test_the_newest_mark_is_the_last_and_the_oldest_of_its_user_goes_wherever_it_is() -> None:
    other = a_mark(user="bob", at_s=0.0)
    full = tuple(a_mark(kind=f"k{index}", at_s=1000.0 - index) for index in range(MARKS_PER_USER_MAX))
    new = a_mark(kind="new", at_s=2000.0)
    assert marked((*full, other), new) == (*full[:-1], other, new)
    assert marked((*full[1:], other), new) == (*full[1:], other, new)
    again = a_mark(kind="k0", at_s=2000.0)
    assert marked((*full, other), again) == (*full[1:], other, again)


def test_the_marks_of_a_job_are_those_of_its_user_kind_and_size() -> None:
    own = [a_mark(accelerator_type="slow"), a_mark()]
    assert marks_of(a_job(), [own[0], a_mark(user="bob"), a_mark(kind="cnn"), a_mark(scale_factor=2), own[1]]) == own


def test_a_job_of_which_nothing_is_known_stays_the_same_object() -> None:
    job, other = a_job(), a_job(spec={"kind": "cnn"})
    (seen,), (other_seen,) = ruled_out([job], []), ruled_out([other], [a_mark()])
    assert seen is job and other_seen is other


def test_every_type_that_is_marked_is_excluded_beside_what_the_user_allows() -> None:
    job = a_job(spec={"accelerator_types": ("fast", "new")})
    (seen,) = ruled_out([job], [a_mark(), a_mark(accelerator_type="slow")])
    assert seen == replace(job, spec=replace(job.spec, accelerator_types=("fast", "new", "!fast", "!slow")))


def fail_on(world: World, job_id: str, line: str = OUT_OF_MEMORY) -> str:
    """Let the job's next gang fail with that line; return the type that it ran on."""
    world.run(lambda: any(g.job_id == job_id and g.state is GangState.RUNNING for g in world.backend.seen.gangs))
    gang = next(each for each in world.backend._gangs.values() if each.launched.job_id == job_id and not each.exit)
    world.backend._end(gang, world.clock.now_s(), a_failure(line))
    world.driver.tick()
    return gang.launched.accelerator_type


def test_a_job_goes_on_elsewhere_and_keeps_its_retries() -> None:
    """1. It fails on the fast type. 2. It and its like run on the slow one only. 3. An operator clears the mark."""
    world = World(cluster=a_cluster_of_nodes(n0="fast", n1="slow"))
    job_id = world.submit(2_000, **STATED)
    assert fail_on(world, job_id) == "fast"
    job = world.job(job_id)
    assert (job.failures, job.losses) == (0, 0) and not job.state.is_terminal
    assert "gang.infeasible" in [event.kind for event in world.store.events(job_id)]
    (mark,) = world.store.snapshot().infeasible
    assert (mark.user, mark.accelerator_type, mark.job_id) == ("ann", "fast", job_id) and "CUDA" in mark.evidence
    second = world.submit(2_000, **STATED)
    world.run_until_s(world.clock.now_s() + 40.0)
    types = {lease.accelerator_type for each in (second, job_id) for lease in world.leases_of(each)[-1:]}
    assert types == {"slow"}
    snapshot = world.store.snapshot()
    state = State(
        jobs=snapshot.jobs, tiers=snapshot.tiers, cluster=world.backend.whole, record=None, infeasible=(mark,)
    )
    why = explain(world.job(job_id), state)
    assert any("not given fast" in each and OUT_OF_MEMORY in each for each in why.would_unblock)
    cleared = world.ask("infeasible.clear", f"infeasible/{mark.id}", id=mark.id)
    world.run_until_s(world.clock.now_s() + 30.0)
    assert world.operation(cleared).state is OperationState.DONE and world.store.snapshot().infeasible == ()
    newest = {lease.accelerator_type for each in (second, job_id) for lease in world.leases_of(each)[-1:]}
    assert newest == {"fast", "slow"}


def test_a_job_that_fits_nowhere_fails_and_says_so() -> None:
    world = World(cluster=a_cluster_of_nodes(n0="fast", n1="slow"))
    job_id = world.submit(2_000, max_retries=3, argv=program("mlp"), **STATED)
    assert {fail_on(world, job_id), fail_on(world, job_id)} == {"fast", "slow"}
    job = world.job(job_id)
    assert (job.state, job.reason) == (JobState.FAILED, Reason.DOES_NOT_FIT)
    assert "No accelerator type is left." in job.message and "CUDA out of memory" in job.message


def test_any_other_failure_marks_nothing() -> None:
    world = World(cluster=a_cluster_of_nodes(n0="fast", n1="slow"))
    job_id = world.submit(2_000, **STATED)
    fail_on(world, job_id, "ValueError: bad shape")
    assert world.job(job_id).state is JobState.FAILED and world.store.snapshot().infeasible == ()


def test_a_job_waits_for_nodes_that_are_away_where_it_may_fit() -> None:
    """The only node of the other type is gone at that moment: that is no reason to give the job up."""
    world = World(cluster=a_cluster_of_nodes(n0="fast", n1="slow"))
    job_id = world.submit(2_000, **STATED)
    world.run(
        lambda: any(gang.job_id == job_id and gang.state is GangState.RUNNING for gang in world.backend.seen.gangs)
    )
    (gang,) = world.backend.seen.gangs
    world.backend.lose_node("n1" if gang.accelerator_type == "fast" else "n0")
    assert fail_on(world, job_id) == gang.accelerator_type
    job = world.job(job_id)
    assert not job.state.is_terminal and "once other nodes are there" in job.message
    world.backend.return_node("n1" if gang.accelerator_type == "fast" else "n0")
    world.run(lambda: world.job(job_id).state is JobState.LEASED)
    assert world.leases_of(job_id)[-1].accelerator_type != gang.accelerator_type
