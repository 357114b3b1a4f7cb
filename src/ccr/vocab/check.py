"""Checks of a concept list: problems with the words themselves, and problems seen on photos."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ccr.coding import HardThreshold, apply_rule
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.geometry import coherence
from ccr.inputs import Embeddings
from ccr.space import Space
from ccr.utils.processes import OnProgress, no_progress
from ccr.vocab.choose import (
    SAME,
    ClassStatistics,
    ScoreStatistics,
    class_statistics,
    confusable,
    score_statistics,
    spreads,
)
from ccr.vocab.domains import domains_of, implausible
from ccr.vocab.features import look
from ccr.vocab.lists import LONGEST_CONCEPT
from ccr.vocab.proposals import LabelTexts, names_colour
from ccr.vocab.wordnet import PERSON, PHENOMENON, Synset, WordNet, concept_key, words_of

MOST_WORDS = 8
#: The kind of problem of a concept that can hardly be said of the classes; a verdict of its own.
IMPLAUSIBLE = "implausible"
#: Concepts between two steps of a progress bar.
TOLD = 256
NEGATIONS = {"not", "no", "without", "never", "non", "isn't", "lacks", "lacking", "absence"}
FUNCTION_WORDS = {
    *("a", "an", "the", "of", "in", "on", "at", "with", "and", "or", "to", "is", "it", "its", "this", "that", "for"),
    *("by", "from", "as", "be", "are", "has", "have", "very", "some", "any"),
    # WordNet has no prepositions, pronouns and conjunctions.
    *("into", "onto", "upon", "toward", "towards", "between", "among", "beside", "besides", "against", "along"),
    *("around", "across", "above", "below", "beneath", "behind", "during", "than", "like", "if", "but", "while", "per"),
    *("under", "over", "through", "inside", "outside", "near", "beyond", "within", "until", "since", "despite", "via"),
    *("their", "them", "they", "his", "her", "he", "she", "you", "your", "our", "we", "who", "which", "whose", "these"),
    *("where", "when", "those", "each", "both", "such", "other", "others", "another", "itself", "themselves", "was"),
    *("were", "been", "me", "my", "myself", "us", "ours", "ourselves", "him", "himself", "herself", "hers"),
    *("yours", "yourself", "theirs", "what", "whom", "how", "why", "could", "would", "should", "shall", "did", "had"),
    *("although", "though", "because", "whether", "unless", "else", "amid", "amidst", "amongst", "versus"),
}
#: Those of them that say from where or how far something is seen: "from above".
PLACES = {"above", "below", "behind", "beneath", "under", "inside", "outside", "between", "beside", "near", "around"}
#: Kinds of nouns that are no things and can be seen: what is written, drawn or marked, and how things look.
SHOWN_KINDS = {
    *("writing", "written communication", "written symbol", "symbol", "mark", "visual communication", "inscription"),
    *("visual property", "appearance", "marking", "document", "visual signal", "print", "picture", "acknowledgment"),
    *("animal group", "collection", "gathering", "ill health", "light", "publication", "currency", "fire", "line"),
    *("outline", "procession", "view", "extremity", "sign", "language unit", "bodily property", "look", "eruption"),
    *("hour", "night", "season", "daytime", "wave"),
}
#: Words for other senses than sight, and judgements.
UNSEEN_WORDS = {
    *("taste", "tasty", "flavor", "flavour", "smell", "scent", "odor", "odour", "aroma", "sound", "noise", "loud"),
    *("sweet", "sour", "bitter", "salty", "delicious", "healthy", "expensive", "cheap", "popular", "famous", "vitamin"),
    *("useful", "dangerous", "friendly", "intelligent", "native", "nutritious", "origin", "calories", "history"),
}


#: Verdicts on a concept, the best first.
VERDICTS = ("good", "doubtful", IMPLAUSIBLE, "bad")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: what kind, why, what to do, and whether the concept is useless as it is (`bad`)."""

    kind: str
    reason: str
    remedy: str
    bad: bool = True


def verdict(problems: Sequence[Problem]) -> str:
    """One of `VERDICTS` for a concept with these problems."""
    if any(problem.bad for problem in problems):
        return "bad"
    if any(problem.kind == IMPLAUSIBLE for problem in problems):
        return IMPLAUSIBLE
    return "doubtful" if problems else "good"


def check_texts(
    names: Sequence[str],
    *,
    leaking: Iterable[str] = (),
    wordnet: WordNet | None = None,
    domains: Iterable[str] = (),
    tied: Iterable[str] = (),
    grey: bool = False,
    tell: OnProgress = no_progress,
) -> list[list[Problem]]:
    """The problems of each concept by its words alone.

    Parameters
    ----------
    names : the concepts as they stand in a file, repeated ones too.
    leaking : texts that give a label away; see `label_texts`.
    wordnet : finds rare words and things that cannot be seen. None: these are not looked for.
    domains : the domains of the classes, as `fitting_domains` says: a concept that cannot be said of them is
        implausible.
    tied : concepts that a source ties to a class, which are plausible whatever the domains.
    grey : whether the photos are grey, so that no colour is plausible.
    tell : called as the work goes on with (names checked, names in all, what is being done).
    """
    labels, fits, tied_keys = LabelTexts(leaking), set(domains), {concept_key(name) for name in tied}
    first: dict[str, str] = {}
    problems = []
    for done, name in enumerate(names):
        if done % TOLD == 0:
            tell(done, len(names), "reading concepts")
        words = words_of(name)
        key = " ".join(_bare(words, wordnet)) or name.casefold()
        wrong = [*_repeated(name, first.get(key)), *_worded(name, words)]
        if labels.are_in(name):
            wrong.append(Problem("label", "it names a class, so that it gives the label away", "say what one sees"))
        if wordnet is not None and not wrong:
            wrong += _known(words, wordnet)
            wrong += [] if concept_key(name) in tied_keys else _fitting(name, fits, wordnet, grey=grey)
        first.setdefault(key, name)
        problems.append(wrong)
    return problems


def _repeated(name: str, before: str | None) -> list[Problem]:
    if before is None:
        return []
    same = "it is there already" if before.casefold() == name.casefold() else f"it says the same as {before!r}"
    return [Problem("repeated", same, "drop one")]


def _worded(name: str, words: Sequence[str]) -> list[Problem]:
    if len(name) > LONGEST_CONCEPT:
        return [Problem("long", f"it has {len(name)} characters", "use a few words")]
    if not set(words) - (FUNCTION_WORDS - PLACES):
        return [Problem("empty", "it names nothing", "name something that one sees, such as 'red skin'")]
    if negated := NEGATIONS & set(words):
        return [Problem("negation", f"encoders do not read {min(negated)!r}", "say what is there instead")]
    if unseen := UNSEEN_WORDS & set(words):
        return [Problem("unseen", f"no photo shows {min(unseen)!r}", "say how it looks")]
    if len(words) > MOST_WORDS:
        return [Problem("long", f"it has {len(words)} words, which blur into each other", "split it", bad=False)]
    return []


def _known(words: Sequence[str], wordnet: WordNet) -> list[Problem]:
    """Unknown words, and phrases in which nothing can be seen. Other scripts than WordNet's are let be."""
    plain = [word.removesuffix("'s") for word in words]
    content = [word for word in plain if word not in FUNCTION_WORDS and word.isascii() and not word.isdigit()]
    pairs = [f"{first} {second}" for first, second in pairwise(words) if wordnet.lists(f"{first} {second}")]
    in_pairs = {word for pair in pairs for word in pair.split()}  # "bok choy"
    strange = [word for word in content if word not in in_pairs and not wordnet.knows(word)]
    if strange:
        reason = f"{strange[0]!r} is in no dictionary"
        return [
            Problem("unknown", reason, "check the spelling, or use a common word", bad=len(strange) == len(content))
        ]
    if content and not any(_can_be_seen(words, wordnet) for words in (*content, *pairs)):
        reason = "it names nothing that a photo can show"
        return [Problem("abstract", reason, "name a part, a colour, a shape, a material, a place", bad=False)]
    return []


def _fitting(name: str, domains: set[str], wordnet: WordNet, *, grey: bool) -> list[Problem]:
    reason = "the photos are grey" if grey and names_colour(name, wordnet) else implausible(name, domains, wordnet)
    remedy = "drop it, or keep it if the photos do show it"
    return [Problem(IMPLAUSIBLE, f"implausible for these classes: {reason}", remedy, bad=False)] if reason else []


def _can_be_seen(word: str, wordnet: WordNet) -> bool:
    stem = word.removesuffix("ness")  # "smoothness", "fluffiness"
    if stem != word and (look(stem, wordnet) or look(f"{stem[:-1]}y", wordnet)):
        return True
    if look(word, wordnet) or wordnet.is_participle(word) or wordnet.is_adjective(word):  # "crumpled", "open"
        return True
    senses = wordnet.senses(wordnet.base(word) or "")[:5]
    first = bool(senses) and senses[0].file in (PERSON, PHENOMENON)
    visible = any(s.visible or domains_of(s, wordnet) - {"people"} or _is_shown(s, wordnet) for s in senses)
    return first or visible or (not senses and wordnet.knows(word))  # "barcode", which is not listed, may be seen


def _is_shown(sense: Synset, wordnet: WordNet) -> bool:
    """Whether it is no thing, and yet something that one sees: handwriting, a receipt, a colour."""
    return any(SHOWN_KINDS & set(kind.lemmas) for kind in (sense, *wordnet.above(sense)))


def _bare(words: Sequence[str], wordnet: WordNet | None) -> list[str]:
    """The words that matter, singular: "a photo of apples" and "apple" are the same."""
    kept = [word for word in words if word not in FUNCTION_WORDS | {"photo", "picture", "image", "kind", "type"}]
    return [(wordnet.base(word) or word) if wordnet is not None else word for word in kept]


#: Images that are looked at, concepts per image, and images shown for each concept.
MOST_IMAGES, LENGTH, SHOWN = 20_000, 12, 5
#: Correlation of scores above which two concepts are hard to tell apart.
ALIKE = 0.85
#: A concept whose scores spread less than this share of what random words' usually do is hardly seen.
LEAST_SPREAD = 0.6
#: Shares of images: active in more is always active.
ALWAYS = 0.6
#: Standard deviations within classes by which some concept must lift a class above its nearest one.
LEAST_LIFT = 1.0
#: Shrinkage of the images' covariance in their metric, as models have it.
SHRINKAGE = 0.5


@dataclass(frozen=True, eq=False)
class ImageCheck:
    """Check of n concepts on images: `problems` of each, `share` of images in which each is active (n,), `top` rows of
    X that show each most (n, up to 5), mean `coherence`, and `uncovered`, the classes that no concept distinguishes
    from their nearest class, each with that class."""

    problems: list[list[Problem]]
    share: np.ndarray
    top: np.ndarray
    coherence: float
    uncovered: dict[str, str]


def check_on_images(
    concepts: Concepts, X: Any, y: np.ndarray, *, control: np.ndarray | None = None, tell: OnProgress = no_progress
) -> ImageCheck:
    """Check concepts on images.

    Parameters
    ----------
    X : (m, d), the images; at most 20,000 of them, evenly spaced, are looked at one by one.
    y : (m,), their labels; at least two classes.
    control : (k, d), text embeddings of words that have nothing to do with the images.
    """
    if len(concepts) < 2:
        raise CCRError(f"a list needs at least 2 concepts to be checked on images, got {len(concepts)}: add some")
    statistics = class_statistics(X, y)
    if len(statistics.classes) < 2:
        raise CCRError(
            f"concepts are checked on at least 2 classes, got {len(statistics.classes)}: add images of others"
        )
    scores = score_statistics(statistics, concepts.embeddings)
    usual = None if control is None else float(np.median(spreads(statistics, control)))
    share, top, spread_out = _looked_at(concepts, X, tell)
    problems = [_problems(row, concepts.names, scores, share, usual) for row in range(len(concepts))]
    return ImageCheck(problems, share, top, spread_out, uncovered(statistics, scores))


def uncovered(statistics: ClassStatistics, scores: ScoreStatistics) -> dict[str, str]:
    """Classes that no concept lifts a standard deviation above the class nearest to them, with that class."""
    nearest: dict[int, int] = {}
    for first, second in confusable(statistics):  # the nearest pairs come first
        nearest.setdefault(int(first), int(second))
        nearest.setdefault(int(second), int(first))
    lift = {
        row: float(((scores.means[row] - scores.means[other]) / scores.within).max()) for row, other in nearest.items()
    }
    names = [str(name) for name in statistics.classes]
    return {names[row]: names[nearest[row]] for row in sorted(lift) if lift[row] < LEAST_LIFT}


def _looked_at(concepts: Concepts, X: Any, tell: OnProgress) -> tuple[np.ndarray, np.ndarray, float]:
    """Shares of images in which concepts are active, the rows that show each most, and the mean coherence."""
    rows = np.linspace(0, len(X) - 1, min(MOST_IMAGES, len(X))).astype(np.int64)
    space = Space.fit_metric(concepts.embeddings, X, shrinkage=SHRINKAGE)
    D = space.own_texts(concepts.embeddings)
    images = Embeddings.ready(space.images(X).take(rows))
    rule = HardThreshold(length=min(LENGTH, max(1, len(concepts) / 4)), sign="positive").rule(images, D)
    share = np.asarray((apply_rule(rule, images, D) != 0).mean(axis=0)).ravel()
    best, top, start = np.full((len(concepts), 0), 0.0), np.zeros((len(concepts), 0), dtype=np.int64), 0
    for chunk in images.chunks(len(concepts)):
        tell(start, len(rows), "looking at images")
        scores = chunk.numpy() @ D.T
        best = np.concatenate([best, scores.T], axis=1)
        top = np.concatenate([top, np.tile(rows[start : start + len(scores)], (len(concepts), 1))], axis=1)
        order = np.argsort(-best, axis=1, kind="stable")[:, :SHOWN]
        best, top = np.take_along_axis(best, order, axis=1), np.take_along_axis(top, order, axis=1)
        start += len(scores)
    return share, top, coherence(D).mean


def _problems(
    row: int, names: Sequence[str], scores: ScoreStatistics, share: np.ndarray, usual: float | None
) -> list[Problem]:
    problems = []
    alike = scores.correlation[row].copy()
    alike[row] = 0.0
    other = int(alike.argmax())
    if alike[other] > SAME and other < row:
        reason = f"its scores are those of {names[other]!r} (correlation {alike[other]:.2f})"
        problems.append(Problem("repeated", reason, "drop one"))
    elif alike[other] > ALIKE:
        reason = f"it can hardly be told from {names[other]!r} (correlation {alike[other]:.2f})"
        problems.append(Problem("alike", reason, "drop one, or say what is different", bad=False))
    if share[row] == 0.0:
        problems.append(Problem("never", "it is active in no image", "drop it, or use the word that people use"))
    elif share[row] > ALWAYS:
        reason = f"it is active in {share[row]:.0%} of the images"
        problems.append(Problem("always", reason, "say something that fewer images show", bad=False))
    if usual is not None and scores.spread[row] < LEAST_SPREAD * usual:
        reason = "the encoder hardly sees it: its scores spread less over images than those of random words"
        problems.append(
            Problem("faint", reason, "use a more visual word, or teach it by `ccr concepts learn`", bad=False)
        )
    return problems
