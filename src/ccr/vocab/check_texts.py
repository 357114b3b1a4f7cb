"""What is wrong with a concept's words, before any photo is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ccr.utils.progress import Tell, no_progress
from ccr.vocab.propose import WordNet
from ccr.vocab.propose.generic import domains_of, implausible
from ccr.vocab.propose.glosses import look
from ccr.vocab.propose.offline import names_colour
from ccr.vocab.propose.plurals import words_of
from ccr.vocab.propose.proposals import LabelTexts, concept_key
from ccr.vocab.propose.wordnet import PERSON, PHENOMENON, Synset
from ccr.vocab.read import LONGEST_CONCEPT

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
    *("those", "each", "both", "such", "other", "others", "another", "itself", "themselves", "was", "were", "been"),
}
#: Kinds of nouns that are no things and can be seen: what is written, drawn or marked, and how things look.
SHOWN_KINDS = {
    *("writing", "written communication", "written symbol", "symbol", "mark", "visual communication", "inscription"),
    *("visual property", "appearance", "marking", "document", "visual signal", "print", "picture", "acknowledgment"),
    *("animal group", "collection", "gathering", "ill health", "light"),
}
#: What other senses than sight tell, and judgements.
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
    tell: Tell = no_progress,
) -> list[list[Problem]]:
    """The problems of each concept by its words alone.

    Parameters
    ----------
    names : sequence of str
        The concepts as they stand in a file, repeated ones too.
    leaking : iterable of str
        Texts that give a label away; see `label_texts`.
    wordnet : WordNet, optional
        Knows words that nobody uses and things that nobody sees. None: these are not looked for.
    domains : iterable of str
        The domains of the classes, as `fitting_domains` says: a concept that cannot be said of them is implausible.
    tied : iterable of str
        Concepts that a source ties to a class, which are plausible whatever the domains.
    grey : bool
        Whether the photos are grey, so that no colour is plausible.
    tell : callable
        Called as the work goes on with (names checked, names in all, what is being done).
    """
    labels, fits, said = LabelTexts(leaking), set(domains), {concept_key(name) for name in tied}
    first: dict[str, str] = {}
    problems = []
    for done, name in enumerate(names):
        if done % TOLD == 0:
            tell(done, len(names), "reading concepts")
        words = words_of(name)
        key = " ".join(_bare(words, wordnet)) or name.casefold()
        found = [*_repeated(name, first.get(key)), *_worded(name, words)]
        if labels.are_in(name):
            found.append(Problem("label", "it names a class, so that it gives the label away", "say what one sees"))
        if wordnet is not None and not found:
            found += _known(words, wordnet)
            found += [] if concept_key(name) in said else _fitting(name, fits, wordnet, grey=grey)
        first.setdefault(key, name)
        problems.append(found)
    return problems


def _repeated(name: str, before: str | None) -> list[Problem]:
    if before is None:
        return []
    same = "it is there already" if before.casefold() == name.casefold() else f"it says the same as {before!r}"
    return [Problem("repeated", same, "drop one")]


def _worded(name: str, words: Sequence[str]) -> list[Problem]:
    if len(name) > LONGEST_CONCEPT:
        return [Problem("long", f"it has {len(name)} characters", "use a few words")]
    if not set(words) - FUNCTION_WORDS:
        return [Problem("empty", "it names nothing", "name something that one sees, such as 'red skin'")]
    if negated := NEGATIONS & set(words):
        return [Problem("negation", f"encoders do not read {min(negated)!r}", "say what is there instead")]
    if unseen := UNSEEN_WORDS & set(words):
        return [Problem("unseen", f"no photo shows {min(unseen)!r}", "say how it looks")]
    if len(words) > MOST_WORDS:
        return [Problem("long", f"it has {len(words)} words, which blur into each other", "split it", bad=False)]
    return []


def _known(words: Sequence[str], wordnet: WordNet) -> list[Problem]:
    """Words that nobody knows, and phrases in which nothing can be seen. Other scripts than WordNet's are let be."""
    plain = [word.removesuffix("'s") for word in words]
    content = [word for word in plain if word not in FUNCTION_WORDS and word.isascii() and not word.isdigit()]
    strange = [word for word in content if not wordnet.knows(word)]
    if strange:
        reason = f"{strange[0]!r} is in no dictionary"
        return [
            Problem("unknown", reason, "check the spelling, or use a common word", bad=len(strange) == len(content))
        ]
    if content and not any(_can_be_seen(word, wordnet) for word in content):
        reason = "it names nothing that a photo can show"
        return [Problem("abstract", reason, "name a part, a colour, a shape, a material, a place", bad=False)]
    return []


def _fitting(name: str, domains: set[str], wordnet: WordNet, *, grey: bool) -> list[Problem]:
    reason = "the photos are grey" if grey and names_colour(name, wordnet) else implausible(name, domains, wordnet)
    remedy = "drop it, or keep it if the photos do show it"
    return [Problem(IMPLAUSIBLE, f"implausible for these classes: {reason}", remedy, bad=False)] if reason else []


def _can_be_seen(word: str, wordnet: WordNet) -> bool:
    if look(word, wordnet) or wordnet.is_participle(word):  # "crumpled", "folded"
        return True
    senses = wordnet.senses(wordnet.base(word) or "")[:5]
    first = bool(senses) and senses[0].file in (PERSON, PHENOMENON)
    seen = any(s.visible or domains_of(s, wordnet) - {"people"} or _is_shown(s, wordnet) for s in senses)
    return first or seen or (not senses and wordnet.knows(word))  # "barcode", which is not listed, may be seen


def _is_shown(sense: Synset, wordnet: WordNet) -> bool:
    """Whether it is no thing, and yet something that one sees: handwriting, a receipt, a colour."""
    return any(SHOWN_KINDS & set(kind.lemmas) for kind in (sense, *wordnet.above(sense)))


def _bare(words: Sequence[str], wordnet: WordNet | None) -> list[str]:
    """The words that matter, singular: "a photo of apples" and "apple" are the same."""
    kept = [word for word in words if word not in FUNCTION_WORDS | {"photo", "picture", "image", "kind", "type"}]
    return [(wordnet.base(word) or word) if wordnet is not None else word for word in kept]
