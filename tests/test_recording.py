"""The recording in the README: small, whole without anything from elsewhere, one command after another."""

import re
import xml.etree.ElementTree as ET

from rich.text import Text

from scripts.recording import COMMANDS, PICTURE, animated


def test_the_recording_is_small_and_loads_nothing() -> None:
    picture = PICTURE.read_text()
    assert len(picture) < 150_000
    assert re.findall(r"url\((?!#)|<script|href=", picture) == []
    shown = "".join(ET.fromstring(picture).itertext()).replace("\xa0", " ")
    assert all(command in shown for command in COMMANDS)


def test_each_command_appears_after_the_one_before() -> None:
    picture = animated([("gavel one", Text("first")), ("gavel two", Text.from_ansi("\x1b[31mred\x1b[0m"))])
    frames = {
        "".join(each.itertext()).strip(): each.get("class") for each in ET.fromstring(picture).iter() if each.text
    }
    assert "frame" not in str(frames["first"])
    assert "frame f1" in str(frames["red"])
    assert "@keyframes f1" in picture and "prefers-reduced-motion" in picture
