"""Commands with hostile options: every one must end with an exit code of ccr's, never with a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sys
from typing import TYPE_CHECKING

from ccr.cli import main

if TYPE_CHECKING:
    from tools.fuzz.areas import Areas

WORDS = ("", "0", "-1", "nan", "1e400", "x", "\x1b[2J", "../..", "none", "all", "{}", "-", "--", "99999999999999999999")
OPTIONS = {
    "evaluate": ("--split", "--json"),
    "explain": ("--against", "--top", "--out", "--encoder", "--baseline", "--json"),
    "audit": ("--split", "--json"),
    "edit": (
        "--suppress",
        "--scale",
        "--weight",
        "--merge",
        "--rename",
        "--pin",
        "--out",
        "--store",
        "--log",
        "--json",
    ),
    "embed": ("--out", "--encoder", "--dtype", "--val", "--test", "--max-pixels", "--max-mb", "--labels", "--json"),
    "fit": ("--concepts", "--out", "--length", "--threshold", "--radius", "--sign", "--encoder", "--json"),
}


def one_command(areas: Areas, rng: random.Random) -> None:
    """Run a command of few arguments, most of them wrong, in the folder of the case."""
    folder = areas.fresh()
    places = (areas.model, areas.store, areas.photos, folder, folder / "nothing", areas.photos / "class 0" / "0.png")
    command = rng.choice(sorted(OPTIONS))
    arguments = [command, *(str(rng.choice((*places, rng.choice(WORDS)))) for _ in range(rng.randrange(4)))]
    for name in rng.sample(OPTIONS[command], rng.randrange(len(OPTIONS[command]))):
        arguments += [name] if name in ("--json", "--log") else [name, str(rng.choice((*WORDS, folder / "out")))]
    before, out = (sys.argv, os.getcwd()), io.StringIO()
    sys.argv = ["ccr", *arguments]
    os.chdir(folder)
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            main()
    except SystemExit as stopped:
        code = stopped.code
    finally:
        sys.argv = before[0]
        os.chdir(before[1])
    assert code in (None, 0, 1, 2), f"exit code {code!r} of ccr {arguments}"
    if "--json" in arguments and code == 1:
        assert "error" in json.loads(out.getvalue()), arguments
