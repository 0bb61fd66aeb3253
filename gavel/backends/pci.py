"""Devices on the PCI bus of this machine, as the kernel shows them. Standard library only, for supervisors, too."""

from pathlib import Path

PCI_DEVICES = Path("/sys/bus/pci/devices")


def amd_gpus(devices: Path | None = None) -> dict[str, Path]:
    """Return the folder of each GPU of AMD by its UUID, which is made of the unique id that its driver shows."""
    folders = {}
    for path in (PCI_DEVICES if devices is None else devices).glob("*/unique_id"):
        unique_id = line(path)
        if unique_id:
            folders[uuid_of(unique_id)] = path.parent
    return folders


def uuid_of(text: str) -> str:
    """Return the UUID of a unique id, or of a UUID in other letters: programs of AMD write both."""
    return f"GPU-{text.lower().removeprefix('gpu-').removeprefix('0x').zfill(16)}"


def line(path: Path) -> str:
    """Return the text of a file of the kernel; "" if it cannot be read, as of a device that has gone."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
