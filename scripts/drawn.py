"""What the scripts that draw pictures share."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

Draw = Callable[[Path], Sequence[Path]]


def main(draw: Draw, pictures: Path) -> int:
    """Draw into the folder that the command line names, else into `pictures`, and say which files were written."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else pictures
    folder.mkdir(parents=True, exist_ok=True)
    for file in draw(folder):
        print(file)
    return 0
