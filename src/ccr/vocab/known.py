"""A first table of knowledge that nobody writes: what proposals, WordNet or a language model say of which class."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ccr.knowledge import Answer, Knowledge
from ccr.utils.progress import Tell, no_progress
from ccr.vocab.propose.llm import ANSWER_TOKENS, Endpoint, Question, RefusedAnswer, answered
from ccr.vocab.propose.plurals import spellings, words_of
from ccr.vocab.propose.proposals import Proposal

_ARTICLES = {"a", "an", "the"}
#: Sources of proposals, whose yes is made anew whenever concepts are proposed again.
PROPOSING = ("wordnet", "llm")
#: Concepts that a language model is asked about at once.
PER_REQUEST = 40
PROMPT = (
    "Photos show objects of the class {name}. Other classes are such as: {others}.{photos}\n"
    "For each of these concepts, say whether nearly every photo of {name} plainly shows it: yes; whether it is not "
    "true of {name}, or only of some of them: no; or that you cannot tell: unknown.\n{concepts}\n"
    'Answer with one JSON object that has exactly these concepts as keys and "yes", "no" or "unknown" as values, and '
    "nothing else."
)
PHOTOS = " Some photos of the class are attached."


def known_path(path: Path) -> Path:
    """The table beside a list of concepts: LIST-knowledge.csv."""
    return path.with_name(path.name.removesuffix(".txt") + "-knowledge.csv")


def proposed_knowledge(proposals: Iterable[Proposal]) -> Knowledge:
    """Yes for every class that a concept was proposed for, from where it came: WordNet or a language model. Concepts
    that fit any photo are known of no class."""
    return Knowledge.of(
        Answer(origin.class_name, item.concept, "yes", origin.source)
        for item in proposals
        for origin in item.origins
        if origin.class_name is not None
    )


def write_proposed(proposals: Iterable[Proposal], path: Path) -> Knowledge:
    """Write the table of proposals beside their list, at `path`; that table.

    Answers that an earlier table has and that proposals do not give stay, and count: those of people and files, and
    every no or unknown, because proposals only say yes, so that somebody must have corrected the cell.
    """
    made = proposed_knowledge(proposals)
    if path.is_file():
        kept = [answer for answer in Knowledge.read(path) if answer.source not in PROPOSING or answer.answer != "yes"]
        made = Knowledge.merged(made, Knowledge.of(kept))
    made.write(path)
    return made


def wordnet_knowledge(classes: Sequence[str], concepts: Sequence[str], said: Iterable[Proposal]) -> Knowledge:
    """Yes where what WordNet says of a class names a concept of the list: the same words in singular or plural, without
    articles, or a longer phrase that has them in a row ("long slender bill" names a slender bill). Looser matches were
    tried and are mostly wrong (on CUB 23 % right instead of 62 %). WordNet never says what a class has not, so there is
    no "no"."""
    phrases: dict[str, set[str]] = {name: set() for name in classes}
    for item in said:
        for origin in item.origins:
            if origin.class_name in phrases:
                phrases[origin.class_name] |= _runs(item.concept)
    spelled = {concept: spellings(_words(concept)) for concept in concepts}
    return Knowledge.of(
        Answer(name, concept, "yes", "wordnet")
        for name, known in phrases.items()
        for concept in concepts
        if not known.isdisjoint(spelled[concept])
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in words_of(text) if word not in _ARTICLES)


def _runs(text: str) -> set[str]:
    """All words in a row of a text that have more than one word, and the whole of it, in singular and plural."""
    words = _words(text)
    found: set[str] = set()
    for start in range(len(words)):
        for stop in range(start + 1, len(words) + 1):
            if stop - start > 1 or stop - start == len(words):
                found |= spellings(words[start:stop])
    return found


class Told(NamedTuple):
    """What a language model answered, and why it failed for the classes that it failed for."""

    knowledge: Knowledge
    failed: dict[str, str]


def model_questions(
    classes: Sequence[str],
    concepts: Sequence[str],
    known: Knowledge | None = None,
    pictures: Mapping[str, Sequence[str]] | None = None,
) -> list[Question]:
    """The questions for a language model: one class and at most `PER_REQUEST` concepts each, without what is `known`;
    `pictures` are photos of the classes as data: addresses, for models that see."""
    asked = []
    for name in classes:
        open_ = [concept for concept in concepts if known is None or known.find(name, concept) is None]
        shown = tuple((pictures or {}).get(name, ()))
        others = json.dumps([other for other in classes if other != name][:20], ensure_ascii=False)
        for start in range(0, len(open_), PER_REQUEST):
            part = open_[start : start + PER_REQUEST]
            told = json.dumps(name, ensure_ascii=False), json.dumps(part, ensure_ascii=False)
            prompt = PROMPT.format(name=told[0], others=others, concepts=told[1], photos=PHOTOS if shown else "")
            asked.append(Question(name, prompt, partial(parse_verdicts, part), shown, answer_tokens(part)))
    return asked


def answer_tokens(concepts: Sequence[str]) -> int:
    """Tokens that an answer about these concepts may have. An answer that is cut off is no JSON and is refused each
    time, so this allows a token for every two bytes, which scripts without spaces need."""
    longest = json.dumps(dict.fromkeys(concepts, "unknown"), ensure_ascii=False, indent=2)
    return max(ANSWER_TOKENS, len(longest.encode()) // 2)


def ask_model(questions: Sequence[Question], endpoint: Endpoint, cache: Path, *, tell: Tell = no_progress) -> Told:
    """The model's answers to these questions; those that the cache has are not asked again."""
    failed: dict[str, str] = {}
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    answers = [
        Answer(question.name, concept, verdict, "llm", endpoint.model, at)
        for question, verdicts in answered(questions, endpoint, cache, failed, tell=tell)
        for concept, verdict in verdicts.items()
    ]
    return Told(Knowledge.of(answers), failed)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different: of a concept that is answered twice, neither answer is sure."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RefusedAnswer("answered twice for the same concept")
    return found


def parse_verdicts(concepts: Sequence[str], text: str) -> dict[str, Any]:
    """One JSON object that says yes, no or unknown of exactly these concepts; anything else is refused."""
    try:
        plain = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
        found = json.loads(plain, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise RefusedAnswer(f"answered no JSON object: {text[:60]!r}") from None
    if not isinstance(found, dict) or set(found) != set(concepts):
        raise RefusedAnswer(f"answered for other concepts than it was asked about: {text[:60]!r}")
    wrong = [verdict for verdict in found.values() if verdict not in ("yes", "no", "unknown")]
    if wrong:
        raise RefusedAnswer(f"answered {str(wrong[0])[:20]!r} where only yes, no or unknown count")
    return {concept: found[concept] for concept in concepts}
