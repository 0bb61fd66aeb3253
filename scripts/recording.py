"""Records the first two minutes for the README: real commands in a terminal on a real service, as one animated SVG.

usage: .venv/bin/python -m scripts.recording          (writes docs/pictures/first-minutes.svg)
"""

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "first-minutes.svg"
COLUMNS = 100
LIMIT_S = 120.0
PAUSE_S = 2.6
END_S = 9.0
COMMANDS = (
    "make serve",
    "gavel job submit --name first examples/train.py",
    "gavel job submit --kind mlp-b256 --steps 300 --name second --scale-factor 2",
    "gavel job list",
    "gavel job explain second",
    "gavel job logs -f second",
    "gavel job list",
)
STYLE = """
.frame { animation: none }
@media (prefers-reduced-motion: no-preference) { .frame { animation: TOTALs step-end infinite } }
"""


def main() -> int:
    PICTURE.write_text(animated([*recorded()]))
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1000:.0f} kB")
    return 0


def recorded() -> list[tuple[str, Text]]:
    """Each command with what it printed, one after another on one service."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "examples", folder / "examples")
        with (
            ServiceProcess(folder / ".gavel", {"GAVEL_ROUND_DURATION_S": "4"}) as service,
            Client(service.url, service.operator_token) as operator,
        ):
            assert wait_until(lambda: bool(operator.cluster()["workers"]), LIMIT_S)
            banner = service.output().replace(service.url, "http://127.0.0.1:8080").replace(name, "~/gavel")
            steps = [(COMMANDS[0], Text(re.sub(r"token=\S+", "token=..", banner.strip())))]
            for number, command in enumerate(COMMANDS[1:], start=1):
                if command == "gavel job list":
                    wait_for("COMPLETED" if number == len(COMMANDS) - 1 else "RUNNING", operator)
                steps.append((command, Text.from_ansi(printed(command, folder))))
            return steps


def wait_for(state: str, operator: Client) -> None:
    """Wait as a person at the terminal does, until all jobs that are left are in that state."""
    over = ("COMPLETED", state)
    assert wait_until(lambda: all(job["state"] in over for job in operator.jobs()), LIMIT_S), state


def printed(command: str, folder: Path) -> str:
    """What the command shows on a terminal of COLUMNS columns."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    names = ("HOME", "LANG")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.Popen(
        command.split(),
        cwd=folder,
        env={**environment, "PATH": path, "TERM": "xterm-256color"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    output = b""
    while chunk := _read(controller):
        output += chunk
    os.close(controller)
    if process.wait(LIMIT_S) != 0:
        raise RuntimeError(f"{command}: {output.decode(errors='replace')}")
    return output.decode().replace("\r\n", "\n").rstrip()


def _read(controller: int) -> bytes:
    try:
        return os.read(controller, 1 << 16)
    except OSError:  # its other end is closed
        return b""


def animated(steps: list[tuple[str, Text]]) -> str:
    """All steps as one terminal in SVG, in which command by command appears; all at once where motion is unwanted."""
    console, frame_of_line = Console(record=True, width=COLUMNS, file=io.StringIO()), []
    for frame, (command, output) in enumerate(steps):
        shown = Text.assemble(("$ ", "bold green"), (command, "bold"), "\n", output)
        lines = shown.wrap(console, COLUMNS)
        for line in lines:
            console.print(line, no_wrap=True, crop=True)
        frame_of_line += [frame] * len(lines)
    picture = console.export_svg(title="the first two minutes", unique_id="first")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)  # nothing is loaded from elsewhere
    total_s = PAUSE_S * len(steps) + END_S
    rules = STYLE.replace("TOTAL", f"{total_s:g}")
    for frame in range(1, len(steps)):
        begins = 100 * PAUSE_S * frame / total_s
        rules += f"@keyframes f{frame} {{ 0% {{ opacity: 0 }} {begins:.1f}%, 100% {{ opacity: 1 }} }}\n"
        rules += f".f{frame} {{ animation-name: f{frame} }}\n"
    picture = picture.replace("</style>", rules + "</style>", 1)
    return re.sub(r"(<text class=\"first-r)(\d+)(\"[^>]*#first-line-(\d+)\))", _classed(frame_of_line), picture)


def _classed(frame_of_line: list[int]) -> Callable[[re.Match[str]], str]:
    def classed(match: re.Match[str]) -> str:
        frame = frame_of_line[min(int(match[4]), len(frame_of_line) - 1)]
        names = f" frame f{frame}" if frame else ""
        return f"{match[1]}{match[2]}{names}{match[3]}"

    return classed


if __name__ == "__main__":
    sys.exit(main())
