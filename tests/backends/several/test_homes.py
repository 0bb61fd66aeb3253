"""Where gangs of regions are on this machine."""

from pathlib import Path

from gavel.backends.several.homes import gangs_dirs, local_home
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
