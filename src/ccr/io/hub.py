"""Models on a hub, by the conventions of huggingface_hub, with a card: the page beside a model's files. Two files are
fetched, JSON and safetensors, and read as strictly as those of any folder."""

from __future__ import annotations

import html
import math
import os
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np

import ccr
from ccr.errors import CCRError, without_credentials
from ccr.explain.drift import GROUNDED
from ccr.io.files import MOST_BYTES, MOST_TENSOR_BYTES, write_bytes, write_text
from ccr.io.format import CONFIG, TENSORS
from ccr.io.provenance import signature_sentence
from ccr.metrics import Fidelity, weights_per_class
from ccr.utils.arrays import import_extra
from ccr.utils.texts import visible

#: Largest numbers of concepts per class and of classes that a card lists; the folder holds all of them.
MOST_CONCEPTS, MOST_CLASSES = 5, 200
_MOST = 1e12  # no count and no measurement of a model is larger
TAGS = ("interpretability", "concept-bottleneck", "explainable-ai", "clip", "ccr")


def model_card(model: Any, *, name: str, license: str | None = None, pictures: Mapping[str, str] | None = None) -> str:
    """The card of a `ConceptModel`: metadata that hubs read, then data, encoder, measurements, concepts, classes,
    limits, and how to load it.

    `pictures` are {file beside the card: what it shows}.
    """
    sections = [_introduction(model, name), _loading(name), _measured(model), _pictures(pictures or {})]
    sections += [_certainty(model), _claims(model), _classes(model), _concepts(model), _origin(model), LIMITS]
    return f"---\n{_metadata(model, name, license)}\n---\n\n" + "\n\n".join(part for part in sections if part) + "\n"


def inert(text: object) -> str:
    """A name from outside as one line of Markdown that shows it and does nothing else."""
    escaped = html.escape(visible(str(text)), quote=False)
    return re.sub(r"([\\`*_\[\]()|~#!])", lambda sign: f"&#{ord(sign[0])};", escaped)


def _metadata(model: Any, name: str, license: str | None) -> str:
    """YAML, made and checked by the hub's own library."""
    hub = _library("a model card needs")
    results = [
        hub.EvalResult(
            task_type="image-classification",
            dataset_type="custom",
            dataset_name="the images that the model was made for",
            dataset_split=split,
            metric_type=kind,
            metric_value=float(measured[field]),
        )
        for split, measured in _evaluations(model)
        for kind, field in (("accuracy", "accuracy"), ("f1", "macro_f1"))
        if _noted(measured, field) is not None
    ]
    data = hub.ModelCardData(
        library_name="ccr",
        license=license,
        pipeline_tag="image-classification",
        tags=list(TAGS),
        metrics=["accuracy"],
        model_name=name if results else None,
        eval_results=results or None,
    )
    return str(data.to_yaml()).strip()


def _introduction(model: Any, name: str) -> str:
    encoder = model.provenance.encoder
    reads = f"embeddings of {inert(encoder)}" if encoder else "embeddings of an encoder that it does not name"
    return (
        f"# {inert(name)}\n\nAn image classifier whose every prediction is a short, exact sum of named concepts, made "
        f"by ccr {ccr.__version__} (Constrained Concept Refinement). It tells {len(model.classes)} classes apart by "
        f"{len(model.names)} concepts, {weights_per_class(model.head):.1f} weights per class, and reads {reads}."
    )


def _loading(given: str) -> str:
    name = given if re.fullmatch(r"[\w./-]+", given) else "OWNER/NAME"
    return (
        '## How to use it\n\n```\npip install "ccr-xai[hub,bundled]"\n'
        f"ccr pull {name} --out model\nccr explain model PHOTO\n```\n\n"
        f'```python\nfrom ccr import ConceptModel\n\nmodel = ConceptModel.from_pretrained("{name}")\n'
        "model.predict(X), model.explain(X[0])   # X: embeddings, one row per image\n```\n\n"
        "Only `config.json` and `model.safetensors` are fetched; nothing is unpickled or executed."
    )


def _evaluations(model: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for split, measured in model.provenance.metrics.items():
        if _noted(measured, "accuracy") is not None:
            yield str(split), measured


def _measured(model: Any) -> str:
    table = "Nothing was measured on labelled images when the model was made: `ccr evaluate` does."
    rows = []
    for split, values in _evaluations(model):
        ends = (_noted(values, "interval", end, times=100) for end in (0, 1))
        cells = [
            inert(split),
            _say("{:.0f}", _noted(values, "n")),
            _say("{:.1f} %", _noted(values, "accuracy", times=100)),
            _say("{:.1f} to {:.1f} %", *ends),
            _say("{:.1f}", _noted(values, "in_play")),
            *(_say("{:.2f}", _noted(values, "fidelity", part)) for part in ("mean", "min")),
            _say("{:.1f} %", _noted(values, "calibration_error", times=100)),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    if rows:
        head = "| split | images | accuracy | 95 % interval | concepts in play | fidelity | least | calibration error |"
        table = "\n".join([head, "|---|--:|--:|--:|--:|--:|--:|--:|", *rows])
    training = ""
    if model.provenance.fidelity is not None:
        own = Fidelity.of(np.asarray(model.provenance.fidelity))
        training = f" On the training images it is {own.mean:.2f} on average and {own.min:.2f} at least."
    return (
        f"## Measured\n\n{table}\n\nFidelity is the correlation, over images, of a concept's scores with those of "
        f"its own text: 1 sees exactly what its text sees.{training}\n\n{_controls(model)}"
    )


def _controls(model: Any) -> str:
    """Accuracy of random concepts beside the model's own: the gap is what the meaning of the words brings."""
    controls = model.provenance.metrics.get("controls")
    known = {} if not isinstance(controls, Mapping) else {name: _control(value) for name, value in controls.items()}
    rows = [f"| {inert(name)} | {row} |" for name, row in known.items() if row]
    if not rows:
        return (
            "Controls: none were noted with this model. Random vectors in place of the concepts can classify as well "
            "as words do, so that accuracy alone does not show meaning; `ccr push --controls` measures the gap."
        )
    head = (
        "Controls: the same fit with concepts that mean nothing. The meaning gap is how far the model is ahead.\n\n"
        "| in place of the concepts | accuracy | meaning gap, points | 95 % interval |\n|---|--:|--:|--:|"
    )
    return "\n".join([head, *rows])


def _control(control: Any) -> str:
    """The cells of one control: an accuracy noted by hand, or what `ccr.controls` measured; else nothing."""
    if isinstance(control, float):
        return f"{_say('{:.1f} %', _noted(control, times=100))} | not known | not known"
    accuracy, gap = (_noted(control, name, times=100) for name in ("accuracy", "gap"))
    ends = (_noted(control, "interval", end, times=100) for end in (0, 1))
    return (
        f"{accuracy:.1f} % | {_say('{:+.1f}', gap)} | {_say('{:+.1f} to {:+.1f}', *ends)}"
        if accuracy is not None
        else ""
    )


def _certainty(model: Any) -> str:
    calibration = model.calibration
    if calibration is None:
        return ""
    return (
        "## When it does not answer\n\n"
        f"Probabilities are at temperature {calibration.temperature:.2f}. Prediction sets hold the true class of "
        f"{100 * calibration.coverage:g} % of images like the {calibration.images} that they were calibrated on; a "
        f"class is in a set if its probability is at least {calibration.least_probability:.3f}, and the "
        "model abstains where that is not exactly one."
    )


def _claims(model: Any) -> str:
    """The card's section on claims: signature, how many are confirmed, and the sources of answers."""
    known, signed = model.provenance.knowledge, signature_sentence(model)
    signed = "" if signed is None else f"\n\n**{inert(signed)}**"
    if known is None:
        return f"## Claims{signed}" if signed else ""
    counts = model.claim_counts
    total, parts = sum(counts.values()), ", ".join(f"{number:,} {status}" for status, number in counts.items())
    named = Counter(claim.source or "not named" for claim in model.claims() if claim.answer != "unknown")
    sources = ", ".join(f"{inert(source)} ({number:,})" for source, number in named.most_common()) or "none"
    measured = [value for value in (model.transfer or {}).values() if math.isfinite(value)]
    transfer = (
        f" Concepts recognise classes that they were not told about by an AUC of {np.mean(measured):.2f} on average "
        "(transfer; 0.5 is chance)."
        if measured
        else ""
    )
    return (
        f"## Claims\n\nA positive weight claims that the class shows the concept: {total:,} claims, {parts} by the "
        f"knowledge that the model was fitted with (digest {known.digest}).{transfer}\n\nSources of the answers: "
        f"{sources}.\n\n{GROUNDED}{signed}"
    )


def _pictures(pictures: Mapping[str, str]) -> str:
    if not pictures:
        return ""
    shown = "\n\n".join(f"![{inert(words)}]({file})" for file, words in pictures.items())
    return f"## Predictions, explained\n\n{shown}"


def _classes(model: Any) -> str:
    lines = ["## Classes", "", "| class | concepts that speak for it most, with their weights |", "|---|---|"]
    for label, weights in list(zip(model.classes.tolist(), model.head.coef, strict=True))[:MOST_CLASSES]:
        order = np.argsort(-weights, kind="stable")[:MOST_CONCEPTS]
        shown = ", ".join(f"{inert(model.names[row])} ({weights[row]:+.2f})" for row in order if weights[row] > 0)
        lines.append(f"| {inert(label)} | {shown or 'none'} |")
    more = len(model.classes) - MOST_CLASSES
    return "\n".join(lines) + (f"\n\nand {more} more." if more > 0 else "")


def _concepts(model: Any) -> str:
    listed = ", ".join(inert(name) for name in model.names)
    gone = model.provenance.left_out
    left = f"\n\nLeft out, because no class has a weight for them: {', '.join(map(inert, gone))}." if gone else ""
    return f"## Concepts\n\n{listed}.{left}"


def _origin(model: Any) -> str:
    origin = model.provenance
    settings = ", ".join(
        f"{inert(name)}={inert(value)}" for name, value in origin.settings.items() if value is not None
    )
    edits = ", ".join(inert(edit.get("action", "?")) for edit in origin.edits)
    noted = origin.metrics.get("images")
    counts = noted.items() if isinstance(noted, Mapping) else ()
    images = ", ".join(f"{count:,.0f} {inert(split)}" for split, count in counts if _noted(count) is not None)
    encoder, fingerprint = inert(origin.encoder or "not known"), inert(origin.encoder_fingerprint or "not known")
    return (
        f"## Where it comes from\n\n- Encoder: {encoder}, fingerprint {fingerprint}.\n"
        f"- Images: {images or 'not known'}.\n"
        f"- Training: {origin.epochs} epochs, of which the {origin.best_epoch}. was kept.\n"
        f"- Settings: {settings}.\n- Changed by hand since: {edits or 'nothing'}."
    )


LIMITS = """## Limits

- It knows its own classes alone: a photo of anything else is still given one of them, if surely so only where the
  model was calibrated to abstain.
- An explanation is exact about what the model computes. Whether a concept is true of a photo depends on the encoder:
  look at the fidelity, and at photos.
- Photos that differ from those it was fitted on, in camera, place or time, are answered worse than measured here."""


def _noted(value: Any, *path: str | int, times: int = 1) -> float | None:
    """The number at this path of what was noted with the model, `times` as large, if a card can show it: finite, and of
    so many digits that it is one of a measurement."""
    for part in path:
        if isinstance(part, str):
            value = value.get(part) if isinstance(value, Mapping) else None
        else:
            value = value[part] if isinstance(value, (list, tuple)) and len(value) == 2 else None
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _MOST
    return times * value if known else None


def _say(form: str, *values: float | None) -> str:
    return "not known" if None in values else form.format(*values)


#: The files that are fetched, and the only ones, with the most bytes that each may have.
FILES = {CONFIG: MOST_BYTES, TENSORS: MOST_TENSOR_BYTES}
CARD = "README.md"
#: Folder of the card's pictures, beside the card.
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
        **options: Any,
    ) -> str:
        """Upload the model and its card to the repository `repo_id`, which is made if there is none; its address.

        `options` are those of `save_pretrained`.
        """
        hub = _library()
        with TemporaryDirectory() as scratch, hub_errors(repo_id):
            folder = self.save_pretrained(Path(scratch) / "model", repo_id=repo_id, **options)
            api = hub.HfApi(endpoint=endpoint(), token=token, library_name="ccr")
            repository = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(
                repo_id=repository.repo_id,
                folder_path=folder,
                commit_message=commit_message,
                revision=revision,
            )
            return without_credentials(str(repository))

    @classmethod
    def from_pretrained(cls: type[Kind], name_or_path: str | os.PathLike[str], **options: Any) -> Kind:
        """Read a model of a hub, or of a folder on this machine. `options` are those of `hf_hub_download`: `revision`,
        `token`, `cache_dir`, `local_files_only`, `force_download`."""
        place = Path(name_or_path)
        loaded: Kind = cls.load(place if place.is_dir() else fetch(str(name_or_path), **options))
        return loaded


def fetch(repo_id: str, **options: Any) -> Path:
    """The folder, in the hub's cache, of the model in a repository: its two files and nothing else."""
    hub = _library()
    with hub_errors(repo_id, cached=bool(options.get("local_files_only"))), _cache_kept(hub):
        files = [
            hub.hf_hub_download(repo_id, name, endpoint=endpoint(), tqdm_class=_limited(name, most), **options)
            for name, most in FILES.items()
        ]
    return Path(files[0]).parent


@contextmanager
def _cache_kept(hub: Any) -> Iterator[None]:
    """While files are fetched: headers that the library makes paths of must not lead out of its cache."""
    hooks = hub.get_session().event_hooks["response"]
    hooks.append(_check_headers)
    try:
        yield
    finally:
        hooks.remove(_check_headers)


def _check_headers(response: Any) -> None:
    for name in ("ETag", "X-Linked-Etag", "X-Repo-Commit", "X-Xet-Hash"):
        value = response.headers.get(name, "").removeprefix("W/").strip('"')
        if ".." in re.split(r"[/\\]", value) or value.startswith(("/", "\\")):
            raise CCRError(
                f"{_named_endpoint()} answered with {name}: {visible(value)!r}, which would be written outside "
                "of the cache, so nothing is fetched: check HF_ENDPOINT"
            )


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
    from huggingface_hub.utils import validate_repo_id  # by name: the library loads its parts late

    with hub_errors(repo_id):
        validate_repo_id(repo_id)


def endpoint() -> str | None:
    """The hub that HF_ENDPOINT names; None: the usual one."""
    return os.environ.get("HF_ENDPOINT") or None


def _named_endpoint() -> str:
    return without_credentials(endpoint() or "the hub")


@contextmanager
def hub_errors(repo_id: str, *, cached: bool = False) -> Iterator[None]:
    """Around what talks to a hub, or with `cached` takes what was fetched before: whatever goes wrong is said in one
    sentence, with what to do."""
    try:
        yield
    except CCRError:
        raise
    except Exception as error:  # of the network, of a server that answers anything, of names that are none
        raise CCRError(_reason(repo_id, error, cached=cached)) from error


def _reason(repo_id: str, error: Exception, *, cached: bool) -> str:
    kinds = {kind.__name__ for kind in type(error).__mro__}  # the library loads its parts late, its errors too
    named, where = visible(repo_id), _named_endpoint()
    text = visible(without_credentials(" ".join(str(error).split()))[:300])
    if "LocalEntryNotFoundError" in kinds and cached:
        return (
            f"{named} was not fetched to this machine before, or not in this revision: leave --cached "
            f"(local_files_only) out to fetch it from {where}"
        )
    reasons = {
        "LocalEntryNotFoundError": "",
        "GatedRepoError": f"{named} is open only to those who were let in: ask its owner, and log in with `hf auth "
        "login`",
        "RepositoryNotFoundError": f"{where} has no model {named}, or shows it to its owners alone: check the name, or "
        "log in",
        "RevisionNotFoundError": f"{named} has no such revision: leave --revision out for the newest ({text})",
        "EntryNotFoundError": f"{named} is not a ccr model: it has no {' and '.join(FILES)}",
        "HFValidationError": f"a model on a hub is called OWNER/NAME, got {named!r}: {text}",
        "HfHubHTTPError": f"{where} refused ({text}): log in with `hf auth login`, or give --token; check the name",
    }
    return next((reasons[kind] for kind in reasons if kind in kinds), "") or (
        f"{where} cannot be reached for {named} ({type(error).__name__}: {text}): check the network and HF_ENDPOINT; a "
        "folder on this machine needs neither, and what was fetched before is found with --cached (local_files_only)"
    )


def _library(what: str = "hubs need") -> Any:
    return import_extra("huggingface_hub", "hub", f"{what} huggingface_hub")
