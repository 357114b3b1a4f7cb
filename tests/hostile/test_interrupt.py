"""Ctrl-C ends every command at once, whatever it is doing, with exit code 130 and a sentence about what is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def interrupt(code: str, *arguments: str, cwd: Path, after: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `ccr` with the code before it, send SIGINT once it printed `after` (or at once), and see how it ends. What it
    is doing then would take an hour."""
    program = f"import sys; sys.argv[1:] = {list(arguments)!r}\n{code}\nfrom ccr.start import main; main()"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=cwd, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if after is not None and after in line:
                break
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=600)
    return subprocess.CompletedProcess([], child.returncode, out, err)


#: Says when numpy is about to be imported, and makes that last.
DURING_IMPORT = """
import builtins, time
real = builtins.__import__
def slow(name, *rest):
    if name == "numpy":
        print("importing", file=sys.stderr, flush=True)
        time.sleep(3600)
    return real(name, *rest)
builtins.__import__ = slow
"""
#: The same with a library that turns the interrupt into something else, and one that swallows it and goes on.
TURNED = DURING_IMPORT.replace(
    "time.sleep(3600)", "\n        try: time.sleep(3600)\n        except BaseException: raise ImportError"
)
SWALLOWED = DURING_IMPORT.replace(
    "time.sleep(3600)", "\n        try: time.sleep(3600)\n        except BaseException: time.sleep(3600)"
)


@pytest.mark.parametrize("code", [DURING_IMPORT, TURNED, SWALLOWED], ids=["plain", "turned", "swallowed"])
def test_during_imports(code: str, tmp_path: Path) -> None:
    done = interrupt(code, "theory", "--instances", "1", cwd=tmp_path, after="importing")
    assert done.returncode == 130, done.stderr
    assert "stopped: nothing half-written is left" in done.stderr
    assert "Traceback" not in done.stderr


def test_in_theory_with_json(tmp_path: Path) -> None:
    code = """
import ccr_lab.theory as theory
real = theory.run_claims
def run(*arguments):
    print("running", file=sys.stderr, flush=True)
    return real(*arguments)
theory.run_claims = run
"""
    done = interrupt(code, "theory", "--instances", "100000", "--json", cwd=tmp_path, after="running")
    assert done.returncode == 130
    assert json.loads(done.stdout)["error"].startswith("stopped: ")
    assert done.stderr == ""


def test_embedding_says_what_is_kept_and_leaves_no_process(tmp_path: Path) -> None:
    from tests.data.test_embedding import make_images

    make_images(tmp_path / "images", 200)
    code = """
import time
from tests.data.helpers import PixelEncoder
from ccr import encoders
class Slow(PixelEncoder):
    def embed_images(self, images, **options):
        print("embedding", file=sys.stderr, flush=True)
        time.sleep(60)
        return super().embed_images(images, **options)
encoders.load_encoder = lambda *_, **__: Slow()
"""
    done = interrupt(code, "embed", "images", "--out", "s", "--batch-size", "4", cwd=tmp_path, after="embedding")
    assert done.returncode == 130, done.stderr
    assert "stopped: images embedded so far are kept in s; the same command goes on from there" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "s" / "progress" / "plan.json").exists()
