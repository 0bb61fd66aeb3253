"""What `gavel port-forward` takes for ports."""

import pytest
import typer

from gavel.cli.port_forward import ports_of


@pytest.mark.parametrize(
    ("text", "ports"), [("8888", (8888, 8888)), ("8888:9999", (8888, 9999)), ("6006:0", (6006, 0))]
)
def test_a_port_and_where_it_is_here(text: str, ports: tuple[int, int]) -> None:
    assert ports_of(text) == ports


@pytest.mark.parametrize("text", ["", "x", "0", "70000", "8888:", "1:2:3", "8888:-1"])
def test_another_text_is_refused(text: str) -> None:
    if text == "8888:":
        assert ports_of(text) == (8888, 8888)
        return
    with pytest.raises(typer.Exit):
        ports_of(text)
