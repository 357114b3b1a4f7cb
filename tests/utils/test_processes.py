"""Processes of our own: where they import from, and when they end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import ccr
from ccr.utils.processes import isolated_python


def test_an_isolated_python_imports_this_ccr_and_none_of_its_modules_by_bare_names(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the current folder is imported from')")
    program = (
        "import importlib.util, json, ccr; found = importlib.util.find_spec('knowledge'); print(ccr.__file__, found)"
    )
    done = subprocess.run(isolated_python(program), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(ccr.__file__), "None"]


def test_a_process_ends_when_the_one_that_started_it_lets_go() -> None:
    program = "import time; from ccr.utils.processes import end_with_parent; end_with_parent(); time.sleep(600)"
    with subprocess.Popen(isolated_python(program), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
