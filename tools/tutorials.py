"""Run the tutorials and keep what they print and draw: `python -m tools.tutorials ccr-demo`."""

from __future__ import annotations

import argparse
import base64
import shutil
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tools.gallery.__main__ import few_colours

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"


def run_notebook(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook at `path` with its outputs, run in `folder`; a cell that fails raises."""
    book = nbformat.read(path, as_version=4)
    client = NotebookClient(
        book, timeout=600, kernel_name="python3", coalesce_streams=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)  # times of day
        for output in cell.get("outputs", []):
            _shrink(output)
        cell.get("outputs", [])[:] = [one for one in cell.get("outputs", []) if one.get("name") != "stderr"]
    return book


def _shrink(output: Any) -> None:
    """A picture in few colours: notebooks travel with the repository."""
    if "image/png" in output.get("data", {}):
        small = few_colours(base64.b64decode(output.data["image/png"]))
        output.data["image/png"] = base64.b64encode(small).decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demo", type=Path, help="folder that `ccr demo` left")
    parser.add_argument("--only", help="a part of the name of a notebook")
    arguments = parser.parse_args()
    for path in sorted(TUTORIALS.glob("*.ipynb")):
        if arguments.only is None or arguments.only in path.stem:
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(arguments.demo, Path(folder) / "ccr-demo")
                nbformat.write(run_notebook(path, Path(folder)), path)
            print(f"{path.name}, {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
