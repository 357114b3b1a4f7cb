"""A model is a folder: config.json + model.safetensors, written whole or not at all. Never pickle."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from ccr.errors import CCRError, FormatError
from ccr.io.files import (
    MOST_TENSOR_BYTES,
    check_writable,
    read_object,
    read_regular,
    recover_folder,
    replace_folder,
    understood,
    write_bytes,
    write_text,
)
from ccr.io.remote import AnyPath, Place, as_place

FORMAT = "ccr-model"
FORMAT_VERSION = 1
CONFIG, TENSORS = "config.json", "model.safetensors"
#: Attempts to read a folder that is being replaced meanwhile.
REPLACED = 20


class ModelFolder(NamedTuple):
    """Content of a model folder: its `config` and its `tensors` by name."""

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]


def save_folder(path: str | os.PathLike[str], model: ModelFolder, reader: Callable[[ModelFolder], Any]) -> AnyPath:
    """Write the folder `path` whole or not at all: a crash leaves the old model or none.

    An existing model is replaced; any other folder that is not empty is refused, and so is a model that `reader` would
    not understand again.
    """
    target = as_place(path)
    check_target(target)
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in model.tensors.items()}
    blob = save_tensors(tensors)
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "tensors_sha256": hashlib.sha256(blob).hexdigest(),
    }
    text = json.dumps({**header, **model.config}, indent=1, ensure_ascii=False, allow_nan=False)
    try:
        reader(ModelFolder(json.loads(text), tensors))
    except CCRError as error:
        raise CCRError(f"this model could not be loaded again, so it is not saved at {target}: {error}") from None

    def write(folder: Path) -> None:
        write_bytes(folder / TENSORS, blob)
        write_text(folder / CONFIG, text)

    replace_folder(target, write)
    return target


def load_folder(path: str | os.PathLike[str]) -> ModelFolder:
    """Read a folder written by `save_folder`; damaged, foreign or newer ones are refused with the reason."""
    folder = as_place(path)
    recover_folder(folder)
    config = _read_config(folder)
    for _ in range(REPLACED):
        try:
            blob = _read_tensors(folder, config)
            break
        except FormatError:
            # Another process may have replaced the folder between the two files: then both are read again.
            before, config = config, _read_config(folder)
            if config == before:
                raise
    else:
        raise FormatError(f"{folder} is replaced over and over while it is read: wait until that ends")
    with understood(folder / TENSORS, "be safetensors", "copy or save it again"):
        tensors = load_tensors(blob)
    return ModelFolder(config, tensors)


def _read_tensors(folder: AnyPath, config: Mapping[str, Any]) -> bytes:
    """The file of tensors that belongs to a configuration."""
    try:
        blob = read_regular(folder / TENSORS, MOST_TENSOR_BYTES)
    except OSError as error:
        raise FormatError(
            f"{folder} is not a whole model: cannot read {TENSORS} ({error.strerror}); save it again"
        ) from None
    if hashlib.sha256(blob).hexdigest() != config.get("tensors_sha256"):
        raise FormatError(
            f"{folder / TENSORS} is damaged: its checksum is not the one in {CONFIG}; copy or save it again"
        )
    return blob


def read_folder(path: str | os.PathLike[str], reader: Callable[[ModelFolder], Any]) -> Any:
    """Read a model's folder by `reader`; an error, with the path, when its parts do not fit together."""
    folder = load_folder(path)
    try:
        with understood(path, "be a model whose config.json and tensors fit together", "copy or save it again"):
            return reader(folder)
    except CCRError as error:
        raise FormatError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def is_model_folder(path: str | os.PathLike[str]) -> bool:
    """Whether `path` holds a model of any version."""
    try:
        _read_config(as_place(path), check_version=False)
    except FormatError:
        return False
    return True


def _read_config(folder: AnyPath, *, check_version: bool = True) -> dict[str, Any]:
    if not folder.is_dir():
        raise FormatError(f"{folder} is not a model: there is no such folder; `ccr fit ... --out {folder}` makes one")
    config = read_object(folder / CONFIG, "be the JSON of a model", "copy or save it again")
    if config.get("format") != FORMAT:
        raise FormatError(f"{folder} is not a ccr model: its {CONFIG} does not say format={FORMAT!r}")
    version = config.get("format_version")
    if check_version and version != FORMAT_VERSION:
        raise FormatError(
            f"{folder} has model format {version!r}, this ccr reads format {FORMAT_VERSION}: "
            f"it was written by ccr {config.get('library_version', 'unknown')}; install that version or newer"
        )
    return config


def check_target(target: AnyPath) -> None:
    """An error when a model could not be saved at `target`: better before the work than after it."""
    target = as_place(target)
    recover_folder(target)
    if target.exists() and not target.is_dir():
        raise CCRError(f"a model is a folder, but {target} is a file: choose another name")
    if target.is_dir() and any(target.iterdir()) and not is_model_folder(target):
        raise CCRError(f"{target} is not empty and not a ccr model, so it is left alone: choose another folder")
    check_writable(target if isinstance(target, Place) else target.absolute().parent)
