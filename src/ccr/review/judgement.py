"""Blind judgement: are the concepts that explanations claim to be shown true of the photo?

A `Sheet` holds claims about held-out photos, shuffled so that whoever judges cannot see which model made them; judges
add verdicts (true, half, false); `score` says, for every model, which share of its claims is true.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ccr.errors import CCRError, FormatError
from ccr.explain.terms import plain
from ccr.io.files import format_errors, lock, read_regular, write_text
from ccr.metrics import SHOWN, Interval, cohens_kappa
from ccr.utils.texts import check_name, did_you_mean, visible

if TYPE_CHECKING:
    from ccr.data.store import EmbeddingStore
    from ccr.model import ConceptModel

#: The verdicts, and what each adds to the share of true claims.
WORTH = {"true": 1.0, "half": 0.5, "false": 0.0}
#: Origin of the control claims: concepts of the first model's list that nobody chose.
RANDOM = "named at random"
#: The judge of a sheet that names none.
UNNAMED = ""
#: Bootstrap draws of photos.
ROUNDS = 4000
#: Counts of photos that are drawn at once, and photos of a sheet, at most: a file of 30 MB could ask for 32 GB of them.
DRAWN, MOST_PHOTOS = 1 << 24, 100_000


@dataclass(frozen=True)
class JudgedPhoto:
    """A photo of the sheet: its row in the split, class and path (None where unknown), and its claims as shuffled."""

    row: int
    label: str | None
    path: str | None
    claims: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"row {self.row}" if self.path is None else self.path


@dataclass(frozen=True)
class Sheet:
    """Claims about photos, who made them, and the verdicts of each judge.

    Parameters
    ----------
    photos : in the order in which they are judged.
    made_by : for each photo, the claims of every origin: each model by its name, and `RANDOM`.
    verdicts : by judge, for each photo, the verdicts given so far by claim.
    facts : where the sheet comes from: store, split, seed. Empty for sheets of earlier versions.
    """

    photos: tuple[JudgedPhoto, ...]
    made_by: tuple[Mapping[str, Sequence[str]], ...]
    verdicts: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(self.made_by[0])

    @property
    def size(self) -> int:
        """Number of claims to judge; a claim that several models make about a photo is one."""
        return sum(len(photo.claims) for photo in self.photos)

    @property
    def digest(self) -> str:
        """Identifies the photos and their claims in their order, whatever was judged."""
        content = [[photo.row, photo.path, list(photo.claims)] for photo in self.photos]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def of(self, judge: str) -> Sequence[Mapping[str, str]]:
        """Verdicts of one judge, photo by photo."""
        return self.verdicts.get(judge) or tuple({} for _ in self.photos)

    def open_claims(self, judge: str) -> list[tuple[int, str]]:
        """Photo number and claim of what this judge has not judged yet."""
        given = self.of(judge)
        return [(at, claim) for at, photo in enumerate(self.photos) for claim in photo.claims if claim not in given[at]]

    def with_verdicts(self, judge: str, given: Mapping[tuple[int, str], str]) -> Sheet:
        """The sheet with these verdicts of a judge, by photo number and claim, added to those given before."""
        if judge:
            check_name(judge, "the name of a judge")
        changed = [dict(verdicts) for verdicts in self.of(judge)]
        for (at, claim), verdict in given.items():
            if not isinstance(verdict, str) or verdict not in WORTH:
                raise CCRError(_no_verdict(self.photos[at], claim, verdict))
            changed[at][claim] = verdict
        return replace(self, verdicts={**self.verdicts, judge: tuple(changed)})

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON; the origins of the claims come last, where a judge need not look."""
        own, others = self.of(UNNAMED), [judge for judge in self.verdicts if judge != UNNAMED]
        photos = []
        for at, photo in enumerate(self.photos):
            path = {} if photo.path is None else {"path": photo.path}
            plain: dict[str, Any] = {"row": photo.row, "class": photo.label, **path}
            plain["verdicts"] = {claim: own[at].get(claim, "") for claim in photo.claims}
            if others:
                plain["verdicts_of"] = {judge: dict(self.verdicts[judge][at]) for judge in others}
            photos.append(plain)
        made_by = [{name: list(claims) for name, claims in made.items()} for made in self.made_by]
        return {**self.facts, "photos": photos, "made_by": made_by}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the sheet as JSON, whole or not at all."""
        write_text(path, json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Sheet:
        """Read a sheet, also one of earlier versions, with one judge and without facts; a malformed one is an error."""
        with format_errors(path, "be a sheet of claims", "give a file that `ccr judge MODEL... STORE --out` wrote"):
            plain = json.loads(read_regular(Path(path)))
            photos = tuple(
                JudgedPhoto(int(one["row"]), _text(one.get("class")), _text(one.get("path")), tuple(one["verdicts"]))
                for one in plain["photos"]
            )
            made_by = tuple({str(name): tuple(claims) for name, claims in made.items()} for made in plain["made_by"])
            named = [one.get("verdicts_of", {}) for one in plain["photos"]]
            given = {UNNAMED: tuple(one["verdicts"] for one in plain["photos"])}
            judges = dict.fromkeys(judge for one in named for judge in one)
            given |= {judge: tuple(one.get(judge, {}) for one in named) for judge in judges}
            facts = {name: value for name, value in plain.items() if name not in ("photos", "made_by")}
            _check(path, photos, made_by, given)
        kept = {
            judge: tuple({claim: verdict for claim, verdict in one.items() if verdict} for one in verdicts)
            for judge, verdicts in given.items()
        }
        return cls(photos, made_by, {judge: one for judge, one in kept.items() if judge or any(one)}, facts)

    @classmethod
    def draw(
        cls,
        models: Mapping[str, ConceptModel],
        rows: EmbeddingStore,
        *,
        photos: int = 24,
        seed: int = 0,
        facts: Mapping[str, Any] | None = None,
    ) -> Sheet:
        """Claims of models about photos drawn at random, shuffled photo by photo with concepts named at random.

        Parameters
        ----------
        models : by the names under which their claims are scored; the first is what the others are compared with.
        rows : the held-out photos to draw from.
        photos : number of photos, without replacement.
        seed : of the photos, the random concepts and the order of the claims.
        facts : written at the head of the sheet, such as the store's path.
        """
        if not models or RANDOM in models:
            raise CCRError(f"a sheet needs at least one model, none of them called {RANDOM!r}, got {list(models)}")
        if not 1 <= photos <= len(rows):
            raise CCRError(f"photos must be between 1 and the {len(rows)} of the split, got {photos}: ask for fewer")
        rng = np.random.default_rng(seed)
        first = next(iter(models.values()))
        listed = [*first.names, *first.provenance.left_out]
        drawn, made_by = [], []
        for row in np.sort(rng.choice(len(rows), photos, replace=False)):
            made = {name: shown(model, rows[int(row)]) for name, model in models.items()}
            chosen = rng.choice(len(listed), min(SHOWN, len(listed)), replace=False)
            made[RANDOM] = tuple(listed[at] for at in chosen)
            different = sorted({claim for claims in made.values() for claim in claims})
            order = tuple(different[place] for place in rng.permutation(len(different)))
            drawn.append(JudgedPhoto(int(row), _text(rows.labels[row]), _text(rows.paths[row]), order))
            made_by.append(made)
        return cls(tuple(drawn), tuple(made_by), facts=dict(facts or {}))


def shown(model: ConceptModel, x: np.ndarray) -> tuple[str, ...]:
    """The concepts that an explanation states, at most the `SHOWN` with the largest terms: those with a positive code
    and, where the model knows how likely the photo shows them, a probability that is large enough; may be none."""
    terms = [term for term in model.explain(x).contributions if term.code > 0]
    return tuple(term.concept for term in terms if term.stated)[:SHOWN]


def record(path: str | os.PathLike[str], judge: str, given: Mapping[tuple[int, str], str]) -> Sheet:
    """Add verdicts to the sheet at `path`, at once on disk; other judges may write into the same sheet meanwhile."""
    with _alone(Path(path)):
        sheet = Sheet.read(path).with_verdicts(judge, given)
        sheet.write(path)
        return sheet


def read_answers(path: str | os.PathLike[str], sheet: Sheet) -> tuple[str, dict[tuple[int, str], str]]:
    """The judge and the verdicts of a file that the page of `sheet` saved; claims without a verdict are left out."""
    with format_errors(path, "be a file of verdicts", "give what the button of the page saved"):
        plain = json.loads(read_regular(Path(path)))
        digest, judge, rows = plain["sheet"], str(plain.get("judge", "")).strip(), plain["verdicts"]
        if digest != sheet.digest:
            raise CCRError(
                f"{path} has verdicts on sheet {digest}, not on {sheet.digest}: name the sheet of its page with --out"
            )
        given = {
            (at, claim): verdict
            for at, (photo, verdicts) in enumerate(zip(sheet.photos, rows, strict=True))
            for claim, verdict in zip(photo.claims, verdicts, strict=True)
            if verdict
        }
    return judge, given


@dataclass(frozen=True)
class OriginScore:
    """Truth of the claims of one origin.

    `claims` were made, `judged` of them have a verdict. `true`, `half` and `false` are shares of the judged claims;
    where several judges judged a claim, each counts for its part. `share` is `true` plus half of `half`, with the
    interval of a bootstrap over photos; `difference` is its distance to the first origin's, over the same draws.
    None: nothing is judged. `silent` photos are those of which nothing is claimed.
    """

    name: str
    claims: int
    judged: int
    per_photo: float
    silent: int
    true: float | None = None
    half: float | None = None
    false: float | None = None
    share: float | None = None
    interval: Interval | None = None
    difference: float | None = None
    difference_interval: Interval | None = None


@dataclass(frozen=True)
class Agreement:
    """Agreement of two judges on the claims that both judged; None without any, and where kappa is not defined."""

    judges: tuple[str, str]
    claims: int
    equal: float | None
    kappa: float | None


@dataclass(frozen=True)
class Scores:
    """Scores of a sheet: by origin, and the agreement of each two judges. `left` counts by judge what is not judged."""

    photos: int
    claims: int
    left: Mapping[str, int]
    origins: tuple[OriginScore, ...]
    agreements: tuple[Agreement, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {
            "photos": self.photos,
            "claims": self.claims,
            "judges": [{"name": judge, "left": left} for judge, left in self.left.items()],
            "origins": plain(self.origins),
            "agreements": plain(self.agreements),
        }


def score(sheet: Sheet, judge: str | None = None, *, confidence: float = 0.95, seed: int = 0) -> Scores:
    """Score what is judged of a sheet, by one judge or (None) by all of them together."""
    judges = [name for name in sheet.verdicts if any(sheet.verdicts[name])]
    if judge is not None and judge not in judges:
        known = ", ".join(map(judge_name, judges)) or "none"
        raise CCRError(f"there is no verdict of {judge_name(judge)}{did_you_mean(judge, judges)}; judges: {known}")
    if not judges:
        raise CCRError("a sheet is scored by its verdicts, and nothing is judged yet: judge some claims first")
    chosen = judges if judge is None else [judge]
    tables = [_table(sheet, name, [sheet.verdicts[one] for one in chosen]) for name in sheet.origins]
    left = {name: len(sheet.open_claims(name)) for name in chosen}
    agreements = tuple(agreement(sheet, *pair) for pair in combinations(chosen, 2))
    return Scores(len(sheet.photos), sheet.size, left, _origin_scores(sheet, tables, confidence, seed), agreements)


def agreement(sheet: Sheet, one: str, other: str) -> Agreement:
    """Share of equal verdicts and Cohen's kappa of two judges, on the claims that both judged."""
    pairs = [
        (first[claim], second[claim])
        for first, second in zip(sheet.of(one), sheet.of(other), strict=True)
        for claim in first
        if claim in second
    ]
    if not pairs:
        return Agreement((one, other), 0, None, None)
    equal = sum(first == second for first, second in pairs) / len(pairs)
    return Agreement((one, other), len(pairs), equal, cohens_kappa(pairs))


def judge_name(judge: str) -> str:
    """The judge's name for people."""
    return judge or "the unnamed judge"


def _table(sheet: Sheet, origin: str, given: Sequence[Sequence[Mapping[str, str]]]) -> np.ndarray:
    """(photos, verdicts): the origin's judged claims by verdict; a claim with several judges is divided among them."""
    table = np.zeros((len(sheet.photos), len(WORTH)))
    for at, made in enumerate(sheet.made_by):
        for claim in made[origin]:
            said = [verdicts[at][claim] for verdicts in given if claim in verdicts[at]]
            for verdict in said:
                table[at, list(WORTH).index(verdict)] += 1 / len(said)
    return table


def _origin_scores(sheet: Sheet, tables: Sequence[np.ndarray], confidence: float, seed: int) -> tuple[OriginScore, ...]:
    """Scores of every origin from its table of verdicts. A share is a ratio of sums over photos: photos of which an
    origin says nothing, or which nobody has judged, add nothing to either."""
    m, rng = len(sheet.photos), np.random.default_rng(seed)
    worth, means = np.array(list(WORTH.values())), np.empty((len(tables), ROUNDS))
    for start in range(0, ROUNDS, size := max(1, DRAWN // m)):
        # The same draws of photos for all origins: what is hard to see for all of them cancels in the differences.
        draws = rng.multinomial(m, np.full(m, 1 / m), size=min(size, ROUNDS - start))
        with np.errstate(invalid="ignore"):  # 0 / 0 in a draw without any judged claim: left out by nanpercentile
            for mean, table in zip(means, tables, strict=True):
                mean[start : start + size] = (draws @ (table @ worth)) / (draws @ table.sum(axis=1))
    ends = [50 * (1 - confidence), 50 * (1 + confidence)]
    scores: list[OriginScore] = []
    for name, table, mean in zip(sheet.origins, tables, means, strict=True):
        made = [len(one[name]) for one in sheet.made_by]
        judged = round(table.sum())
        plain = OriginScore(name, sum(made), judged, sum(made) / m, made.count(0))
        if judged:
            true, half, false = map(float, table.sum(axis=0) / judged)
            plain = replace(
                plain,
                true=true,
                half=half,
                false=false,
                share=true * WORTH["true"] + half * WORTH["half"],
                interval=Interval(*map(float, np.nanpercentile(mean, ends))),
            )
        if judged and scores and scores[0].share is not None and plain.share is not None:
            apart = Interval(*map(float, np.nanpercentile(mean - means[0], ends)))
            plain = replace(plain, difference=plain.share - scores[0].share, difference_interval=apart)
        scores.append(plain)
    return tuple(scores)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _check(
    path: str | os.PathLike[str],
    photos: Sequence[JudgedPhoto],
    made_by: Sequence[Mapping[str, Sequence[str]]],
    given: Mapping[str, Sequence[Mapping[str, str]]],
) -> None:
    """Refuse a sheet whose parts do not belong together, or with a verdict that is none."""
    if not photos or len(photos) != len(made_by) or any(list(made) != list(made_by[0]) for made in made_by):
        raise FormatError(
            f'{path} must name the same origins for each photo under "made_by", got {len(photos)} photos and '
            f"{len(made_by)} lists of origins: restore the file, and change verdicts alone"
        )
    if len(photos) > MOST_PHOTOS:
        raise FormatError(f"{path} must have at most {MOST_PHOTOS:,} photos, got {len(photos):,}: draw a smaller sheet")
    for photo, made in zip(photos, made_by, strict=True):
        extra = {claim for claims in made.values() for claim in claims} - set(photo.claims)
        if extra:
            raise FormatError(
                f"{path}: every claim about a photo must be there to judge, but {photo.name} lacks "
                f"'{visible(str(min(extra)))}': restore the file, and change verdicts alone"
            )
    for judge, verdicts in given.items():
        for photo, one in zip(photos, verdicts, strict=True):
            for claim, verdict in one.items():
                if claim not in photo.claims:
                    raise FormatError(
                        f"{path}: {judge_name(judge)} judged '{visible(claim)}' of {photo.name}, which nobody claims"
                        f"{did_you_mean(claim, photo.claims)}: correct it in the file"
                    )
                if not isinstance(verdict, str) or (verdict and verdict not in WORTH):
                    raise CCRError(f"{path}: {_no_verdict(photo, claim, verdict)}")


def _no_verdict(photo: JudgedPhoto, claim: str, verdict: object) -> str:
    return (
        f"a verdict is true, half or false, got {verdict!r} for the claim '{visible(claim)}' about {photo.name}: "
        "give one of the three"
    )


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time, where the system can: the folder is locked, because the file is replaced."""
    if os.name != "posix":  # folders cannot be opened there
        yield
        return
    handle = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        lock(handle)
        yield
    finally:
        os.close(handle)
