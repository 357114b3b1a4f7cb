"""The map of the project: in every room, a module imports only from modules above its own."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import ccr

SOURCE = Path(ccr.__file__).parent
ROOT = Path(__file__).parents[1]
#: Modules and rooms of every room, each below what it may import.
ORDER = {
    "": "errors progress interrupt isolated texts reading buckets ranges places files core data models review runtime "
    "study show serve studio scale cli start",
    "core": "arrays checks parameters devices threads team geometry knowledge questions grounding shown examples "
    "concepts kernels sources inputs space coding heads metrics quality conformal frames refine explain",
    "core/kernels": "compiling plain x86 choice warm",
    "core/kernels/plain": "arguments vectors elastic lasso pursuit rows select moving step slopes scoring training "
    "tier",
    "core/kernels/x86": "variants compiling llvm arguments exponential memory tiles vectors rounding packing workspace "
    "score shared step phases division training tier",
    "core/coding": "entries scoring masks rules close pursuit lasso codes coders registry readouts",
    "core/heads": "linear softmax dense_softmax design curvature proximal elastic",
    "core/refine": "options data engine dense sparse shared evidence measure progress fixed choice trainer loop "
    "squared",
    "core/explain": "patches terms claims where question sums picture views counterfactual intervention comparison "
    "mistake explanation many images pairs drift",
    "models": "unfitted labels bound provenance informed likely linear_model persist model_checks signature card hub "
    "calibration certain model_format left_out export photos concept_model calibrating checkpoint fewest edit "
    "estimator paper_settings classifier rivals",
    "models/export": "exportable torch_module onnx_parts onnx_resize onnx_encoder onnx_graph onnx_file exports",
    "models/photos": "prediction chunk reading several where on_photos tables kept run",
    "models/edit": "log effect changes session",
    "models/rivals": "dense_model base concept_layer labelfree controls",
    "data": "assets encoders datasets store vocab",
    "data/datasets": "decode sources base arrays folder splits arrow manifest patterns tar parquet published open "
    "photos",
    "data/datasets/published": "listing cifar cub imagenet places",
    "data/encoders": "protocol progress_bars preprocess bundled_texts last_layer graph bundled_layer torch_common "
    "torch_patches hf_patches openclip_patches bundled hf openclip named registry occlusion",
    "data/store": "layout workers ranged matrix metadata plan chunk shards store begun embedding",
    "data/vocab": "read words statistics classes propose known choose check_texts check_seen automatic examples",
    "data/vocab/propose": "plurals proposals wordnet generic glosses senses features offline llm",
    "review": "decisions questions rounds signing",
    "runtime": "rows selection why model folder",
    "study": "theory experiments lists controls judgement",
    "study/theory": "testbed pursuit losses necessity refinement sampling observe_pursuit observe_refinement "
    "observe_metric isotropy judging metric_claims claims scenes anisotropy",
    "study/experiments": "records pool part cache settings probe gain curves sweep fixed_lambda protocol attributes "
    "compare frontier",
    "study/experiments/compare": "task usage converged methods run comparison table by_epoch",
    "show": "style axes sums page claims_page review_page questions_page where_pictures plots model_plots "
    "experiment_plots compare_plots frontier_plots theory_plots where_plots demo_page report concepts_page judge_page",
    "show/report": "pictures headline gallery classes concepts report",
    "serve": "limits meters guards batching schemas answers service routes app runner",
    "studio": "arrays photos seen filters thumbnails session edits refits words uploads photo mistakes concepts "
    "umap_worker layout selections differences exports search settings worker where workbench reviewing api app "
    "serving",
    "studio/api": "schemas state photos concepts views bench review",
    "studio/api/schemas": "common photos views concepts bench review",
    "scale": "cluster desks crew parts contents assembly embedding prediction team rows fitting pool",
    # Commands come last, and none imports another.
    "cli": "common common_run common_data common_options common_ray common_photo common_tables edit_options demo embed "
    "fit evaluate explain predict export audit claims judge edit report serve push pull studio theory figures compare "
    "sweep reproduce concepts_propose concepts_check concepts_choose concepts_learn knowledge_ask "
    "knowledge_session knowledge_terminal knowledge_photos knowledge_files review_session review",
}


def position(room: tuple[str, ...], name: str) -> int:
    return ORDER["/".join(room)].split().index(name)


def imported(path: Path) -> set[tuple[str, ...]]:
    """What a file imports of ccr when it runs: the parts of each module's name below ccr. Nouns that only annotations
    need may stand below: an explanation can be compared, and a comparison is of explanations."""
    names = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]:
        tree.body.remove(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in inner if is_module(name)}
            names |= modules or {node.module or ""}
    return {tuple(name.split(".")[1:]) for name in names if name.startswith("ccr.")}


def is_module(name: str) -> bool:
    place = SOURCE.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def test_no_import_goes_down_the_map() -> None:
    checked = 0
    for path in sorted(SOURCE.rglob("*.py")):
        own = path.relative_to(SOURCE).with_suffix("").parts
        for other in imported(path):
            depth = next((at for at, pair in enumerate(zip(own, other, strict=False)) if pair[0] != pair[1]), None)
            if depth is None:
                depth = min(len(own), len(other)) - 1
            if own[depth] == "__init__":
                continue  # a room's face may show all that is in it
            assert depth < len(other) - 1 or own[: depth + 1] != other, f"{path} imports its own room {other}"
            room = own[:depth]
            above = position(room, other[depth]) < position(room, own[depth])
            assert above, f"{path} imports ccr.{'.'.join(other)}, which is below it"
            checked += 1
    assert checked > 300


def test_every_module_is_on_the_map() -> None:
    rooms = {path.parent for path in SOURCE.rglob("*.py")}
    for room in rooms:
        present = {path.stem for path in room.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
        name = "/".join(room.relative_to(SOURCE).parts)
        assert present - {"__init__", "__main__"} == set(ORDER[name].split()), (
            f"the map of {name or 'ccr'} is not right"
        )


def test_the_package_exports_what_it_says() -> None:
    assert all(hasattr(ccr, name) for name in ccr.__all__)


def test_importing_ccr_alone_is_light() -> None:
    code = "import sys, ccr; assert 'torch' not in sys.modules; ccr.Concepts; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


PROGRAMS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("benchmarks", "tools")
    for path in (ROOT / folder).rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_benchmarks_and_tools_find_what_they_import(program: str) -> None:
    importlib.import_module(program)
