"""What a program that was started before its lease loads, and what it leaves for its lease."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gavel_runtime._warm import load_libraries

NOTED = "import os\nos.environ['SEEN'] += ' {name}'\nNAME = 1\n"
ENTER = "from gavel_runtime._warm import main; main()"


@pytest.mark.parametrize(
    ("source", "loaded"),
    [
        ("import one_library\nimport two_library", ["one", "two"]),
        ("'''Text.'''\nfrom __future__ import annotations\nfrom one_library import NAME as x", ["one"]),
        ("import one_library, two_library.part", ["one", "two", "part"]),
        ("import one_library\nx = 1\nimport two_library", ["one"]),
        ("x = 1\nimport one_library", []),
        ("if True:\n    import one_library", []),
        ("try:\n    import one_library\nexcept ImportError:\n    pass", []),
        ("import one_library\nimport mine\nimport two_library", ["one"]),
        ("import one_library, mine", []),
        ("from . import mine", []),
        ("import not_there_at_all\nimport one_library", []),
        ("import shadowed", []),
        ("", []),
    ],
)
def test_the_first_imports_are_loaded_up_to_a_module_of_the_job(
    source: str, loaded: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mine` lies beside the script; `shadowed` is installed, too, and the script would get its own one."""
    installed, own = tmp_path / "installed", tmp_path / "own"
    for folder, names in ((installed, ("one_library", "shadowed")), (own, ("mine", "shadowed"))):
        folder.mkdir()
        for name in names:
            (folder / f"{name}.py").write_text(
                f"import os\nos.environ['SEEN'] += ' {name.removesuffix('_library')}'\nNAME = 1"
            )
    (installed / "two_library").mkdir()
    (installed / "two_library" / "__init__.py").write_text("import os\nos.environ['SEEN'] += ' two'")
    (installed / "two_library" / "part.py").write_text("import os\nos.environ['SEEN'] += ' part'")
    monkeypatch.setenv("SEEN", "")
    monkeypatch.setattr(sys, "path", [str(own), *sys.path, str(installed)])
    before = set(sys.modules)
    try:
        load_libraries(source.encode(), [str(own)])
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
    assert os.environ["SEEN"].split() == loaded


def test_what_a_library_loads_at_its_first_use_is_loaded_too_if_the_script_imports_it(tmp_path: Path) -> None:
    """PyTorch loads its compiler with the first optimizer; a version without one, or a broken one, is no error."""
    script, library = tmp_path / "job" / "train.py", tmp_path / "installed" / "torch"
    for folder in (script.parent, library):
        folder.mkdir(parents=True)
    (library / "__init__.py").write_text("")

    def seen(imports: str) -> str:
        script.write_text(f"{imports}\nimport sys\nx = 1\nprint('torch._dynamo' in sys.modules)")
        return subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.append('{library.parent}'); {ENTER}", str(script)],
            input="{}",
            env={"GAVEL_WARM": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.strip()

    assert seen("import torch") == "False"
    (library / "_dynamo.py").write_text("raise RuntimeError('broken')")
    assert seen("import torch") == "False"
    (library / "_dynamo.py").write_text("")
    assert (seen("import torch"), seen("import json")) == ("True", "False")


def test_the_script_runs_as_the_main_module_with_the_environment_of_its_lease(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("TEXT = 'of the job'")
    script = tmp_path / "train.py"
    script.write_text(
        "import json\nimport helper\nimport os, pickle, sys\n"
        "class Kept: pass\n"
        "assert isinstance(pickle.loads(pickle.dumps(Kept())), Kept)\n"
        "print(__name__, sys.argv, __file__, helper.TEXT, os.environ['A'], os.environ.get('B'), repr(sys.stdin.read()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", ENTER, str(script), "--lr", "1"],
        input='{"A": "of the lease"}',
        env={"GAVEL_WARM": "1", "A": "early", "B": "gone"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout == f"__main__ ['{script}', '--lr', '1'] {script} of the job of the lease None ''\n"


def test_a_program_whose_supervisor_is_gone_ends(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('runs')")
    program = [sys.executable, "-c", ENTER, str(tmp_path / "train.py")]
    result = subprocess.run(
        program, stdin=subprocess.DEVNULL, env={"GAVEL_WARM": "1"}, capture_output=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (1, b"")


def test_a_library_that_asks_for_the_job_is_held_until_the_lease_begins() -> None:
    """An import that begins to train waits for its lease, and has the environment of that."""
    code = "from gavel_runtime import job; print('id', job.id)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        input='{"GAVEL_GANG_DIR": "/nowhere", "GAVEL_JOB_ID": "j1", "GAVEL_GENERATION": "1", "GAVEL_RANK": "0", '
        '"GAVEL_WORLD_SIZE": "1", "GAVEL_CHECKPOINT_DIR": "/nowhere", "GAVEL_START_STEP": "0", '
        '"GAVEL_LEASE_EXPIRES_BOOTTIME_S": "1"}',
        env={"GAVEL_WARM": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout == "id j1\n"
