"""The colours of jobs are told apart with normal, protan and deutan vision, and labels on them can be read."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import api.dashboard.pages
from gavel.types import FloatArray

PALETTE = (Path(api.dashboard.pages.__file__).parent / "static" / "palette.js").read_text()
COLOURS = re.findall(r"#[0-9a-f]{6}", re.search(r"const COLOURS = \[(.*?)\];", PALETTE, re.DOTALL)[1])  # type: ignore[index]
INK = "#0d151c"  # of the labels on blocks (gantt.js)
# Machado, Oliveira, Fernandes (IEEE TVCG 15(6), 2009), table 1: severity 1.0, on linear RGB
VISIONS = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
XYZ_OF_RGB = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
LEAST_DIFFERENCE = 20.0  # in CIELAB; 2.3 is just noticeable


def linear(colour: str) -> FloatArray:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: FloatArray) -> FloatArray:
    """CIE 1976 L*a*b* of linear RGB, D65."""
    ratio = (XYZ_OF_RGB @ rgb.clip(0, 1)) / XYZ_OF_RGB.sum(axis=1)
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISIONS)
def test_any_two_colours_are_told_apart(vision: str) -> None:
    seen = {colour: lab(VISIONS[vision] @ linear(colour)) for colour in COLOURS}
    differences = {
        pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])) for pair in itertools.combinations(COLOURS, 2)
    }
    assert len(COLOURS) >= 8 and min(differences.values()) > LEAST_DIFFERENCE, min(
        differences, key=lambda p: differences[p]
    )


def test_they_differ_in_lightness_and_labels_on_them_can_be_read() -> None:
    lightness = [float(lab(linear(colour))[0]) for colour in COLOURS]
    assert max(lightness) - min(lightness) > 30
    luminance = [float(XYZ_OF_RGB[1] @ linear(colour)) for colour in (INK, *COLOURS)]
    assert min((each + 0.05) / (luminance[0] + 0.05) for each in luminance[1:]) > 4.0
