"""Where each of several backends keeps its gangs: in a folder of its region, below the state folder."""

from pathlib import Path

from gavel.config import Settings

REGIONS = "regions"


def regions_dir(state_dir: Path) -> Path:
    """Return the folder of what is known of all regions."""
    return state_dir / REGIONS


def region_dir(state_dir: Path, region: str) -> Path:
    """Return the state folder of one region's backend."""
    return regions_dir(state_dir) / region


def gangs_dirs(settings: Settings) -> list[Path]:
    """Return the folders of gangs, one for each backend."""
    state_dir = settings.state_dir.resolve()
    homes = [region_dir(state_dir, name) if name else state_dir for name in settings.by_region]
    return [home / "gangs" for home in homes]


def local_home(settings: Settings, region: str) -> Path | None:
    """Return the folder with the gangs of this machine, for a job in a region; None if its gangs are elsewhere."""
    own = settings.by_region.get(region if settings.backends else "")
    if own is None or own.backend != "local":
        return None
    return region_dir(settings.state_dir, region) if settings.backends else settings.state_dir
