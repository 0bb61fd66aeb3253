"""Where each of several backends keeps its gangs: in a folder of its region, below the state folder."""

from pathlib import Path

from gavel.backends.gang import GangKey
from gavel.backends.nodes.tunnel_requests import boxes_of, bridge_box
from gavel.backends.several import link_speeds
from gavel.config import Settings
from gavel.config_sections import KubernetesSection, SlurmSection

REGIONS = "regions"


def regions_dir(state_dir: Path) -> Path:
    """Return the folder of what is known of all regions."""
    return state_dir / REGIONS


def speeds_file(state_dir: Path) -> Path:
    """Return the file of how fast copies between regions were."""
    return regions_dir(state_dir) / link_speeds.FILE


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
    own = of_region(settings, region)
    if own is None or own.backend != "local":
        return None
    return home_of(settings, region)


def home_of(settings: Settings, region: str) -> Path:
    """Return the state folder of the backend of a region."""
    return region_dir(settings.state_dir, region) if settings.backends else settings.state_dir


def orders_folder(settings: Settings) -> Path | None:
    """Return the folder of all orders to agents of one backend; None if its gangs have no agents of their own."""
    section = nodes_section(settings)
    if section is None:
        return None
    return settings.orders_dir or Path(section.shared_dir).expanduser().resolve()


def boxes_of_gang(settings: Settings, region: str, gang: GangKey) -> list[Path]:
    """Return the boxes in which the agents of a gang are asked for tunnels; none while it has no agents."""
    own = of_region(settings, region)
    orders = orders_folder(own) if own is not None else None
    if orders is not None:
        return boxes_of(orders, gang)
    box = bridge_box(home_of(settings, region))
    return [box] if own is not None and own.backend == "ray" and box.is_dir() else []


def nodes_section(settings: Settings) -> SlurmSection | KubernetesSection | None:
    """Return the settings of one backend on which each gang has an allocation of its own; None for any other."""
    return (
        settings.slurm
        if settings.backend == "slurm"
        else settings.kubernetes
        if settings.backend == "kubernetes"
        else None
    )


def of_region(settings: Settings, region: str) -> Settings | None:
    """Return the settings of the backend of a job in a region; None if there is no such region."""
    return settings.by_region.get(region if settings.backends else "")
