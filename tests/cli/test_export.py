"""The speeds that an exported trace gives a job: its own before its kind's, what is known before what is guessed."""

from typing import Any

from gavel.cli.simulate import _rates


def speed(kind: str, name: str, rate: float, source: str = "measured", **over: Any) -> Any:
    return {"kind": kind, "scale_factor": 1, "accelerator_type": name, "steps_per_s": rate, "source": source} | over


def test_a_job_is_exported_with_its_own_speed() -> None:
    job: Any = {"id": "j1", "kind": "mlp", "scale_factor": 1, "throughputs": {"slow": 7.0, "fast": 90.0}}
    speeds = [
        speed("mlp#j1", "fast", 4.0),
        speed("mlp", "fast", 10.0),
        speed("mlp", "slow", 5.0, "inferred"),
        speed("mlp", "other", 3.0, "inferred"),
        speed("mlp", "odd", 1.0, "unknown"),
        speed("mlp", "fast", 1.0, scale_factor=2),
        speed("cnn", "fast", 2.0),
    ]
    assert _rates(job, "mlp", 1, speeds) == {"fast": 4.0, "slow": 7.0, "other": 3.0}
