"""Models on a hub, by the conventions of huggingface_hub. From a hub two known files are fetched, JSON and safetensors,
and read as strictly as those of any folder: nothing is unpickled or executed."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from ccr.errors import CCRError, MissingExtraError
from ccr.files import write_bytes, write_text
from ccr.models.card import model_card
from ccr.models.persist import CONFIG, TENSORS
from ccr.reading import MOST_BYTES, MOST_TENSOR_BYTES
from ccr.texts import visible

#: The files that are fetched, and the only ones, with the most bytes that each may have.
FILES = {CONFIG: MOST_BYTES, TENSORS: MOST_TENSOR_BYTES}
CARD = "README.md"
#: Where pictures for the card lie beside it.
PICTURES = "pictures"

Kind = TypeVar("Kind", bound="OnHub")


class OnHub:
    """`save_pretrained`, `push_to_hub` and `from_pretrained` for whatever has `save` and `load`."""

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> None: ...

    @classmethod
    @abstractmethod
    def load(cls, path: str | os.PathLike[str]) -> Any: ...

    @abstractmethod
    def shared_model(self) -> Any:
        """The `ConceptModel` that the card is about."""

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        *,
        repo_id: str | None = None,
        license: str | None = None,
        pictures: Mapping[str, tuple[str, bytes]] | None = None,
    ) -> Path:
        """Write the model as a folder with its card.

        Parameters
        ----------
        save_directory : the folder; a model there is replaced whole.
        repo_id : the name in the card; by default the folder's.
        license : of the model, as hubs write it, such as "apache-2.0".
        pictures : for the card, {file name: (what it shows, PNG)}.
        """
        if repo_id is not None:
            check_repository(repo_id)
        folder, drawn = Path(save_directory), pictures or {}
        shown = {f"{PICTURES}/{name}": words for name, (words, _) in drawn.items()}
        card = model_card(self.shared_model(), name=repo_id or folder.name, license=license, pictures=shown)
        self.save(folder)
        for name, (_, content) in drawn.items():
            write_bytes(folder / PICTURES / Path(name).name, content)
        write_text(folder / CARD, card)
        return folder

    def push_to_hub(
        self,
        repo_id: str,
        *,
        token: str | None = None,
        private: bool | None = None,
        revision: str | None = None,
        commit_message: str = "Push model using ccr",
        create_pr: bool = False,
        **options: Any,
    ) -> str:
        """Upload the model and its card to the repository `repo_id`, which is made if there is none; its address.

        `options` are those of `save_pretrained`.
        """
        hub = _library()
        with TemporaryDirectory() as scratch, in_words(repo_id):
            folder = self.save_pretrained(Path(scratch) / "model", repo_id=repo_id, **options)
            api = hub.HfApi(endpoint=endpoint(), token=token, library_name="ccr")
            made = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(
                repo_id=made.repo_id,
                folder_path=folder,
                commit_message=commit_message,
                revision=revision,
                create_pr=create_pr or None,
            )
            return str(made)

    @classmethod
    def from_pretrained(
        cls: type[Kind],
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool = False,
        force_download: bool = False,
    ) -> Kind:
        """Read a model of a hub, or of a folder on this machine."""
        place = Path(pretrained_model_name_or_path)
        if not place.is_dir():
            place = fetch(
                str(pretrained_model_name_or_path),
                revision=revision,
                token=token,
                cache_dir=cache_dir,
                local_files_only=local_files_only,
                force_download=force_download,
            )
        loaded: Kind = cls.load(place)
        return loaded


def fetch(repo_id: str, **options: Any) -> Path:
    """The folder, in the hub's cache, of the model in a repository: its two files and nothing else."""
    hub = _library()
    with in_words(repo_id, cached=bool(options.get("local_files_only"))):
        found = [
            hub.hf_hub_download(repo_id, name, endpoint=endpoint(), tqdm_class=_limited(name, most), **options)
            for name, most in FILES.items()
        ]
    return Path(found[0]).parent


def _limited(name: str, most: int) -> type:
    """A progress bar that ends a download of more bytes than may be read: a hub may announce one length, or none, and
    send without an end."""
    from huggingface_hub.utils import tqdm

    class Limited(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.received = options.get("initial") or 0
            self._check(max(self.received, options.get("total") or 0))

        def update(self, n: float | None = 1) -> Any:
            self.received += n or 0
            self._check(self.received)
            return super().update(n)

        def _check(self, size: float) -> None:
            if size > most:
                raise CCRError(f"{name} on the hub has more than {most:,} bytes, so it is not fetched: check the name")

    return Limited


def check_repository(repo_id: str) -> None:
    """An error for a name that no repository of a hub can have."""
    _library()
    from huggingface_hub.utils import HFValidationError, validate_repo_id  # by name: the library loads its parts late

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise CCRError(_reason(repo_id, error, cached=False)) from error


def endpoint() -> str | None:
    """The hub that HF_ENDPOINT names; None: the usual one."""
    return os.environ.get("HF_ENDPOINT") or None


@contextmanager
def in_words(repo_id: str, *, cached: bool = False) -> Iterator[None]:
    """Around what talks to a hub, or with `cached` takes what was fetched before: whatever goes wrong is said in one
    sentence, with what to do."""
    try:
        yield
    except CCRError:
        raise
    except Exception as error:  # of the network, of a server that answers anything, of names that are none
        raise CCRError(_reason(repo_id, error, cached=cached)) from error


def _reason(repo_id: str, error: Exception, *, cached: bool) -> str:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    named, where = visible(repo_id), endpoint() or "the hub"
    said = visible(" ".join(str(error).split())[:300])
    if cached and "LocalEntryNotFoundError" in kinds:
        return (
            f"{named} was not fetched to this machine before, or not in this revision: leave --cached "
            f"(local_files_only) out to fetch it from {where}"
        )
    if "GatedRepoError" in kinds:
        return f"{named} is open only to those who were let in: ask its owner, and log in with `hf auth login`"
    if "RepositoryNotFoundError" in kinds:
        return f"{where} has no model {named}, or shows it to its owners alone: check the name, or log in"
    if "RevisionNotFoundError" in kinds:
        return f"{named} has no such revision: leave --revision out for the newest ({said})"
    if "EntryNotFoundError" in kinds and "LocalEntryNotFoundError" not in kinds:
        return f"{named} is not a ccr model: it has no {' and '.join(FILES)}"
    if "HFValidationError" in kinds:
        return f"a model on a hub is called OWNER/NAME, got {named!r}: {said}"
    if "HfHubHTTPError" in kinds:
        return f"{where} refused ({said}): log in with `hf auth login`, or give --token; check the name"
    return (
        f"{where} cannot be reached for {named} ({type(error).__name__}: {said}): check the network and HF_ENDPOINT; a "
        "folder on this machine needs neither, and what was fetched before is found with --cached (local_files_only)"
    )


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtraError('hubs need huggingface_hub: pip install "ccr-xai[hub]"') from error
    return huggingface_hub
