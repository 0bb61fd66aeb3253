"""Where gangs of regions are on this machine."""

from pathlib import Path

from gavel.backends.several.homes import gangs_dirs, local_home, of_region, orders_folder
from gavel.config import Settings

BACKENDS = {"here": {"backend": "local"}, "far": {"backend": "simulated"}}


def test_a_single_local_backend_has_the_state_folder(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    assert local_home(settings, "") == local_home(settings, "eu") == tmp_path
    assert gangs_dirs(settings) == [tmp_path.resolve() / "gangs"]
    assert local_home(Settings(state_dir=tmp_path, backend="ray"), "") is None


def test_of_several_backends_the_local_one_has_a_folder_of_its_region(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, backend="several", backends=BACKENDS)
    assert local_home(settings, "here") == tmp_path / "regions" / "here"
    assert [local_home(settings, region) for region in ("far", "mars", "")] == [None] * 3
    assert gangs_dirs(settings) == [tmp_path.resolve() / "regions" / name / "gangs" for name in BACKENDS]


def test_orders_to_agents_are_in_the_shared_folder_of_their_backend_or_in_the_state_folder(tmp_path: Path) -> None:
    far = {"backend": "slurm", "slurm": {"shared_dir": str(tmp_path / "shared")}}
    near = {"backend": "kubernetes", "kubernetes": {"orders": "connection"}}
    backends = {"here": {"backend": "local"}, "far": far, "near": near}
    settings = Settings(state_dir=tmp_path, backend="several", backends=backends, public_url="https://gavel.example")  # type: ignore[arg-type]
    parts = {name: of_region(settings, name) for name in (*backends, "mars")}
    folders = {name: orders_folder(own) if own else None for name, own in parts.items()}
    orders = tmp_path.resolve() / "orders"
    assert folders == {"here": None, "far": tmp_path.resolve() / "shared", "near": orders, "mars": None}
