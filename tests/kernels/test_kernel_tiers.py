"""Which tier of kernels is used, that each works without the other, and where compiled kernels are kept."""

from __future__ import annotations

import ast
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ccr
from ccr import kernels
from ccr.errors import CCRError
from ccr.kernels import compiling, tiers
from ccr.kernels.plain import pursuit as lasso

PACKAGE = Path(ccr.__file__).parent
pytestmark = pytest.mark.tiers
x86_only = pytest.mark.skipif(kernels.TIER != "x86", reason="the x86 kernels cannot be used here")
FIT = """
import numpy as np
from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr import kernels
rng = np.random.default_rng(0)
X, y = rng.normal(size=(200, 12)), np.arange(200) % 3
X[np.arange(200), y] += 3.0
concepts = Concepts([f"concept {i}" for i in range(20)], rng.normal(size=(20, 12)))
model = ConceptClassifier(concepts, coder=HardThreshold(length=4), max_iter=3, random_state=0).fit(X, y)
print(kernels.TIER, model.score(X, y) > 0.8, kernels.__file__)
"""


def run(program: str, *, path: Path = PACKAGE.parent, cwd: Path | None = None, **variables: str) -> list[str]:
    """What a Python program prints, by its words; ccr comes from `path`."""
    environment = {**os.environ, "PYTHONPATH": str(path), **variables}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_plain_kernels_are_numba_alone() -> None:
    for path in (PACKAGE / "kernels" / "plain").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "llvmlite" not in text
        assert "intrinsic" not in text


def test_only_the_choice_of_a_tier_knows_the_folder_of_x86_kernels() -> None:
    name = "ccr.kernels.x86"
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "x86"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith(name))
        or (isinstance(node, ast.Constant) and str(node.value).startswith(name))
    }
    assert users == {"kernels/tiers.py"}


def test_without_the_folder_everything_works(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("x86", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "ccr", ignore=ignored)
    (tmp_path / "ccr" / "kernels" / "x86" / "__pycache__").mkdir(parents=True)  # as `git rm` leaves it
    tier, accurate, file = run(FIT, path=tmp_path, cwd=tmp_path, CCR_KERNELS="")
    assert (tier, accurate) == ("plain", "True")
    assert Path(file).is_relative_to(tmp_path)


@pytest.mark.parametrize("wish", ["plain", kernels.TIER])
def test_the_environment_chooses(wish: str) -> None:
    assert run(FIT, CCR_KERNELS=wish)[:2] == [wish, "True"]


def test_what_cannot_be_chosen_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CCRError, match=r"CCR_KERNELS must be one of plain, x86, avx2, .*, got 'fast'"):
        tiers.choose_tier("fast")

    def changed() -> None:
        raise AttributeError("llvmlite is another")

    monkeypatch.setattr(tiers, "_x86", changed)
    with pytest.raises(CCRError, match="CCR_KERNELS=x86 cannot be used here: llvmlite is another; unset it"):
        tiers.choose_tier("x86")
    with caplog.at_level(logging.WARNING, logger="ccr"):
        assert tiers.choose_tier("").TIER == "plain"
    assert "slower kernels are used (plain): llvmlite is another" in caplog.text
    assert tiers.choose_tier("plain").TIER == "plain"


@x86_only
def test_fewer_instructions_are_used_where_they_are_wished_for() -> None:
    from ccr.kernels.x86.variants import FEATURES, VARIANTS, runnable

    program = "from ccr import kernels; from ccr.kernels.x86.tiles import TILE; print(kernels.VARIANT, TILE.lanes)"
    assert {variant.name for variant in VARIANTS} == set(tiers.WISHES) - {"plain", "x86"}
    for variant in runnable(FEATURES):
        assert run(program, CCR_KERNELS=variant.name) == [variant.name, str(variant.lanes)]
    assert run(program, CCR_KERNELS="x86")[0] == runnable(FEATURES)[0].name


@x86_only
def test_instructions_that_the_cpu_lacks_are_refused_in_words() -> None:
    from ccr.kernels.x86.variants import choose

    old, newer = {"avx2": True, "fma": True}, {"avx2": True, "fma": True, "avxvnni": True}
    assert [choose(wish, old).name for wish in ("", "x86", "avx2")] == ["avx2"] * 3
    assert choose("", newer).name == "avx2vnni"
    with pytest.raises(ImportError, match=r"no avx512f, .*, avx512vnni, and can run avx2vnni, avx2"):
        choose("avx512vnni", newer)
    with pytest.raises(ImportError, match="no avxvnni or avx512vnni"):
        choose("avx2vnni", old)
    with pytest.raises(ImportError, match="no AVX2"):
        choose("", {"sse2": True})


def test_for_another_cpu_the_plain_kernels_are_used() -> None:
    assert run("from ccr import kernels; print(kernels.TIER)", NUMBA_CPU_NAME="generic", CCR_KERNELS="") == ["plain"]


def test_kernels_are_kept_under_the_key_of_their_sources(tmp_path: Path) -> None:
    assert compiling.CACHE is not None
    assert compiling.CACHE.name == f"ccr-kernels-{compiling.cache_key()}"
    assert Path(lasso.nonnegative_lasso.stats.cache_path).parent == compiling.CACHE
    program = "from ccr import kernels; kernels.warm_up(group='lasso')"
    run(program, NUMBA_CACHE_DIR=str(tmp_path))
    assert list(tmp_path.glob(f"{compiling.CACHE.name}/*/pursuit.nonnegative_lasso-*.nbi"))


def test_the_key_changes_with_every_source_and_nothing_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    (folder / "plain").mkdir(parents=True)
    (folder / "plain" / "one.py").write_text("a = 1")
    keys = [compiling.cache_key(folder)]
    (folder / "plain" / "one.py").write_text("a = 2")
    keys.append(compiling.cache_key(folder))
    (folder / "two.py").write_text("")
    keys.append(compiling.cache_key(folder))
    assert len(set(keys)) == 3
    assert compiling.cache_key(folder) == keys[-1]


def test_where_the_sources_cannot_be_written_the_users_cache_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(compiling.config, "CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(compiling, "SOURCES", tmp_path / "file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = compiling.cache_folder()
    assert folder is not None
    assert folder.is_dir()
    assert not folder.is_relative_to(tmp_path / "file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    if sys.platform.startswith("linux"):
        assert folder.is_relative_to(tmp_path / "cache")
        assert compiling.cache_folder() is None


def test_warming_up_is_quick_when_done_and_says_nothing() -> None:
    said: list[str] = []
    kernels.warm_up(said.append)
    said.clear()
    kernels.warm_up(said.append)
    assert said == []


def test_compiling_elsewhere_happens_when_asked_for_and_imports_nothing_that_lies_about(tmp_path: Path) -> None:
    lying = tmp_path / "photos"
    lying.mkdir()
    for name in ("numpy", "numba", "ccr"):
        (lying / f"{name}.py").write_text("open('imported', 'w').close(); raise SystemExit(1)")
    program = f"""
import os, subprocess
from ccr.kernels import tiers
os.chdir({str(lying)!r})
started, original = [], subprocess.run
subprocess.run = lambda *a, **k: (started.append(1), original(*a, **k))[1]
for group in ("pursuit", "lasso"):
    tiers.GROUPS[group] = tiers.GROUPS[group]._replace(call=lambda: None)  # nothing is compiled here
tiers.warm_up(group="pursuit")
assert not started
tiers.warm_up(group="lasso", elsewhere=True)
print(len(started))
"""
    cache = tmp_path / "cache"
    cache.mkdir()
    assert run(program, NUMBA_CACHE_DIR=str(cache), cwd=tmp_path) == ["1"]
    assert not (lying / "imported").exists()
    assert list(cache.glob("*/*/pursuit.nonnegative_lasso-*.nbi"))


def test_a_wait_is_called_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.warm_up(group="lasso")
    said: list[str] = []
    monkeypatch.setattr(tiers, "PATIENCE", 0.0)
    monkeypatch.setitem(tiers.GROUPS, "lasso", tiers.GROUPS["lasso"]._replace(call=lambda: time.sleep(0.2)))
    for cache in (tiers.CACHE, None):
        monkeypatch.setattr(tiers, "CACHE", cache)
        monkeypatch.setattr(tiers, "_ready", set())
        tiers.warm_up(said.append, group="lasso")
    assert [line.split()[0] for line in said] == ["loading", "compiling"]
