"""The page about ephemeral resources shows what the libraries do today."""

from pathlib import Path

from scripts.ephemeral_pictures import PICTURES, draw

PAGE = Path(__file__).parents[2] / "docs" / "ephemeral-resources.md"


def test_the_pictures_show_what_the_libraries_do_today(tmp_path: Path) -> None:
    for drawn in draw(tmp_path):
        kept = PICTURES / drawn.name
        assert kept.read_text() == drawn.read_text(), "run .venv/bin/python -m scripts.ephemeral_pictures"
        assert f"pictures/ephemeral/{drawn.name}" in PAGE.read_text()
