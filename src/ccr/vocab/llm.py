"""Proposals and answers of a language model behind any OpenAI-compatible endpoint: Ollama, vLLM, hosted.

Plain HTTP of the standard library: one kind of request needs no client package. Every good answer is kept in a cache,
so that nothing is paid twice and a run that broke off goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ccr.errors import CCRError
from ccr.io.files import read_regular, write_json
from ccr.knowledge import Answer, Knowledge
from ccr.utils.processes import OnProgress, no_progress
from ccr.utils.texts import timestamp
from ccr.vocab.proposals import Origin, Proposal

KINDS = ("parts", "colours", "shapes", "textures", "surroundings")
KEY_VARIABLES = ("CCR_LLM_KEY", "OPENAI_API_KEY")
#: Answers longer than this are not read on, and no concept is longer than so many words and characters.
LONGEST_ANSWER, MOST_WORDS, MOST_CHARACTERS = 1 << 20, 6, 60
#: Seconds after which an answer that still goes on is given up. Some servers send blanks until a model has answered.
LONGEST_WAIT = 600.0
#: Tokens that an answer may have, and characters per token in estimates of cost.
ANSWER_TOKENS, TOKEN_CHARACTERS = 400, 4
#: Tokens of a picture in estimates of cost.
PICTURE_TOKENS = 400
MOST_PER_KIND = 12
PROMPT = (
    "Photos show objects of the class {name}. The other classes are such as: {others}.\n"
    "List what can be SEEN in a photo of {name}: at most six short phrases of one to four words for each of "
    + ", ".join(KINDS)
    + ". Never use the class name or a synonym of it, nothing that cannot be seen (taste, smell, use, origin), no "
    'negations. Answer with one JSON object and nothing else, such as {{"parts": ["long tail"], "colours": ["dark '
    'brown"], "shapes": [], "textures": [], "surroundings": []}}.'
)


@dataclass(frozen=True)
class Endpoint:
    """Endpoint of a language model, and how it is asked.

    Parameters
    ----------
    url : of the API, such as http://localhost:11434/v1; `/chat/completions` is added.
    model : the model's name there.
    timeout : seconds to wait for an answer.
    attempts : how often a request is sent before a class is given up, from 1.
    pause : seconds before the second attempt, doubled each time; a server's own Retry-After counts when it is longer.
    """

    url: str
    model: str
    timeout: float = 60.0
    attempts: int = 4
    pause: float = 1.0

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
        except ValueError:
            parts = urlsplit("")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise CCRError(
                f"keys come from the environment ({KEY_VARIABLES[0]}), never from the address, which has no ? and #: "
                "take them out"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CCRError(
                f"--llm-url is an address such as http://localhost:11434/v1, so is --vlm-url, got {self.url!r}"
            )


class Estimate(NamedTuple):
    """Cost estimate of asking a language model: requests left to send, cached answers, and tokens at most."""

    requests: int
    cached: int
    prompt_tokens: int
    answer_tokens: int


class LLMProposals(NamedTuple):
    """Concepts proposed by a language model, and the reason of failure for each class that failed."""

    proposals: list[Proposal]
    failed: dict[str, str]


class RefusedAnswer(Exception):
    """An answer that cannot be used; asking again may help."""


def estimate(classes: Sequence[str], endpoint: Endpoint, cache: Path) -> Estimate:
    """Cost estimate of `ask`, without sending anything."""
    return estimated([LLMQuestion(name, _prompt(name, classes), parse_answer) for name in classes], endpoint, cache)


def estimated(questions: Sequence[LLMQuestion], endpoint: Endpoint, cache: Path) -> Estimate:
    """Upper bound of requests and tokens for these questions; a picture counts for `PICTURE_TOKENS`."""
    waiting = [question for question in questions if not _cached(endpoint, question, cache).is_file()]
    tokens = sum(
        len(question.prompt) // TOKEN_CHARACTERS + 1 + PICTURE_TOKENS * len(question.pictures) for question in waiting
    )
    answers = sum(question.answer_tokens for question in waiting)
    return Estimate(len(waiting), len(questions) - len(waiting), tokens, answers)


def ask(classes: Sequence[str], endpoint: Endpoint, cache: Path, *, tell: OnProgress = no_progress) -> LLMProposals:
    """Ask a language model for the visible concepts of each class; one request per class that is not in the cache."""
    proposals: list[Proposal] = []
    failed: dict[str, str] = {}
    questions = [LLMQuestion(name, _prompt(name, classes), parse_answer) for name in classes]
    for question, answer in answered(questions, endpoint, cache, failed, tell=tell):
        proposals += [
            Proposal(text, (Origin(question.name, "llm", kind, f"{endpoint.model} on {question.name}"),))
            for kind in KINDS
            for text in answer[kind]
        ]
    return LLMProposals(proposals, failed)


class LLMQuestion(NamedTuple):
    """A prompt about a class, with pictures (data: addresses) if there are any, and what reads the answer strictly."""

    name: str
    prompt: str
    parse: Callable[[str], dict[str, Any]]
    pictures: tuple[str, ...] = ()
    answer_tokens: int = ANSWER_TOKENS

    @property
    def content(self) -> Any:
        """The message as the API takes it."""
        if not self.pictures:
            return self.prompt
        shown = [{"type": "image_url", "image_url": {"url": url}} for url in self.pictures]
        return [{"type": "text", "text": self.prompt}, *shown]


def answered(
    questions: Iterable[LLMQuestion],
    endpoint: Endpoint,
    cache: Path,
    failed: dict[str, str],
    *,
    tell: OnProgress = no_progress,
) -> Iterator[tuple[LLMQuestion, dict[str, Any]]]:
    """Each question with its parsed answer: from the cache, or asked and kept there. Questions that the model could not
    answer are left out, and `failed` says why by name. Each question is drawn after the answer before it was used, on
    which it may depend."""
    total = len(questions) if isinstance(questions, Sized) else 0
    for number, question in enumerate(questions):
        tell(number, total, f"asking {endpoint.model}")
        kept = _cached(endpoint, question, cache)
        answer = _kept(kept, question.parse)
        if answer is None:
            try:
                answer = _answer(endpoint, question)
            except RefusedAnswer as reason:
                failed[question.name] = str(reason)
                continue
            write_json(kept, answer)
        yield question, answer


def parse_answer(text: str) -> dict[str, list[str]]:
    """The five lists of an answer, cleaned; anything that is not one JSON object of lists of texts is refused."""
    try:
        parsed = json.loads(text.strip().removeprefix("```json").removeprefix("```").removesuffix("```"))
    except (ValueError, RecursionError):
        raise RefusedAnswer(f"answered no JSON object: {text[:60]!r}") from None
    if not isinstance(parsed, dict) or not any(kind in parsed for kind in KINDS):
        raise RefusedAnswer(f"answered without any of {', '.join(KINDS)}: {text[:60]!r}")
    cleaned = {kind: _phrases(parsed.get(kind, []), kind) for kind in KINDS}
    if not any(cleaned.values()):
        raise RefusedAnswer("answered with empty lists")
    return cleaned


def _phrases(items: Any, kind: str) -> list[str]:
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise RefusedAnswer(f"answered {kind} that are no list of texts: {str(items)[:60]!r}")
    phrases = (" ".join(unicodedata.normalize("NFC", item).split()).strip(" .,;-*#\"'") for item in items)
    return [phrase for phrase in dict.fromkeys(phrases) if _is_phrase(phrase)][:MOST_PER_KIND]


def _is_phrase(text: str) -> bool:
    """A few plain words: no sentences, no markup, no control or formatting characters."""
    plain = all(character.isalnum() or character in " -'" for character in text)
    return plain and 1 < len(text) <= MOST_CHARACTERS and len(text.split()) <= MOST_WORDS


def _prompt(name: str, classes: Sequence[str]) -> str:
    others = [other for other in classes if other != name][:20]
    return PROMPT.format(name=json.dumps(name, ensure_ascii=False), others=json.dumps(others, ensure_ascii=False))


def _cached(endpoint: Endpoint, question: LLMQuestion, cache: Path) -> Path:
    text = "\n".join([endpoint.url, endpoint.model, question.prompt, *question.pictures])
    return cache / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _kept(path: Path, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any] | None:
    """A cached answer, read as strictly as a new one."""
    try:
        return parse(read_regular(path).decode())
    except (OSError, UnicodeDecodeError, RefusedAnswer):
        return None


def _answer(endpoint: Endpoint, question: LLMQuestion) -> dict[str, Any]:
    """The parsed answer to one question, asked for as often as the endpoint allows."""
    pause, request = endpoint.pause, _request(endpoint, question)
    for attempt in range(1, endpoint.attempts + 1):
        try:
            return question.parse(_content(_post(request, endpoint.timeout)))
        except HTTPError as error:
            if error.code in (400, 401, 403, 404, 405, 422):
                raise CCRError(_denied(endpoint, error)) from None
            reason, wait = f"answered with status {error.code}", max(pause, _retry_after(error))
        except RefusedAnswer as refused:
            reason, wait = str(refused), pause
        except (URLError, HTTPException, OSError, ValueError) as error:
            reason, wait = f"could not be reached: {str(getattr(error, 'reason', error))[:200]}", pause
        if attempt < endpoint.attempts:
            time.sleep(wait)
            pause *= 2
    raise RefusedAnswer(reason)


def _post(request: Request, timeout: float) -> bytes:
    """The server's answer; an error where it does not come to an end, as one that sends a byte now and then."""
    outcome: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

    def receive() -> None:
        try:
            outcome.put(_received(request, timeout))
        except Exception as error:  # raised below
            outcome.put(error)

    threading.Thread(target=receive, daemon=True).start()
    try:
        found = outcome.get(timeout=LONGEST_WAIT)
    except queue.Empty:
        raise TimeoutError(f"its answer had no end after {LONGEST_WAIT:g} seconds") from None
    if isinstance(found, Exception):
        raise found
    return found


def _request(endpoint: Endpoint, question: LLMQuestion) -> Request:
    body = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": question.content}],
        "temperature": 0,
        "max_tokens": question.answer_tokens,
    }
    headers = {"Content-Type": "application/json"}
    key = _key()
    if key:
        headers["Authorization"] = f"Bearer {key}"
    url = endpoint.url.rstrip("/") + "/chat/completions"
    return Request(url, data=json.dumps(body).encode(), headers=headers, method="POST")


def _key() -> str | None:
    """The key of the environment, without the line end of a file that it was read from."""
    for name in KEY_VARIABLES:
        key = os.environ.get(name, "").strip()
        if key and not (key.isascii() and key.isprintable()):
            raise CCRError(f"the environment's {name} must be a key of printable ASCII characters: set it again")
        if key:
            return key
    return None


def _received(request: Request, timeout: float) -> bytes:
    with build_opener(_NoRedirect).open(request, timeout=timeout) as response:
        data: bytes = response.read(LONGEST_ANSWER + 1)
    if len(data) > LONGEST_ANSWER:
        raise RefusedAnswer(f"answered with more than {LONGEST_ANSWER} bytes")
    return data


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would carry the key to another server."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        return None


def _content(data: bytes) -> str:
    """The message in a chat completion."""
    try:
        content = json.loads(data)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise RefusedAnswer(f"answered no chat completion: {data[:60]!r}") from None
    if not isinstance(content, str):
        raise RefusedAnswer("answered with an empty message")
    return content


def _denied(endpoint: Endpoint, error: HTTPError) -> str:
    remedy = "check the address and the name of the model"
    if error.code in (401, 403):
        remedy = f"set the key in the environment, {' or '.join(KEY_VARIABLES)}"
    return f"{endpoint.url} refused the request with status {error.code}: {remedy}; answers so far are kept"


def _retry_after(error: HTTPError) -> float:
    try:
        return min(60.0, float(error.headers.get("Retry-After", "0")))
    except ValueError:
        return 0.0


#: Concepts that a language model is asked about at once.
PER_REQUEST = 40
CLAIMS_PROMPT = (
    "Photos show objects of the class {name}. Other classes are such as: {others}.{photos}\n"
    "For each of these concepts, say whether nearly every photo of {name} plainly shows it: yes; whether it is not "
    "true of {name}, or only of some of them: no; or that you cannot tell: unknown.\n{concepts}\n"
    'Answer with one JSON object that has exactly these concepts as keys and "yes", "no" or "unknown" as values, and '
    "nothing else."
)
ATTACHED = " Some photos of the class are attached."


class KnowledgeAnswers(NamedTuple):
    """Knowledge from the answers of a language model, and the reason of failure for each class that failed."""

    knowledge: Knowledge
    failed: dict[str, str]


def model_questions(
    classes: Sequence[str],
    concepts: Sequence[str],
    known: Knowledge | None = None,
    pictures: Mapping[str, Sequence[str]] | None = None,
) -> list[LLMQuestion]:
    """The questions for a language model: one class and at most `PER_REQUEST` concepts each, without what is `known`;
    `pictures` are photos of the classes as data: addresses, for models that see."""
    asked = []
    for name in classes:
        open_ = [concept for concept in concepts if known is None or known.find(name, concept) is None]
        shown = tuple((pictures or {}).get(name, ()))
        others = json.dumps([other for other in classes if other != name][:20], ensure_ascii=False)
        for start in range(0, len(open_), PER_REQUEST):
            part = open_[start : start + PER_REQUEST]
            quoted = json.dumps(name, ensure_ascii=False), json.dumps(part, ensure_ascii=False)
            prompt = CLAIMS_PROMPT.format(
                name=quoted[0], others=others, concepts=quoted[1], photos=ATTACHED if shown else ""
            )
            asked.append(LLMQuestion(name, prompt, partial(parse_verdicts, part), shown, answer_tokens(part)))
    return asked


def answer_tokens(concepts: Sequence[str]) -> int:
    """Tokens that an answer about these concepts may have. An answer that is cut off is no JSON and is refused each
    time, so this allows a token for every two bytes, which scripts without spaces need."""
    longest = json.dumps(dict.fromkeys(concepts, "unknown"), ensure_ascii=False, indent=2)
    return max(ANSWER_TOKENS, len(longest.encode()) // 2)


def ask_model(
    questions: Sequence[LLMQuestion], endpoint: Endpoint, cache: Path, *, tell: OnProgress = no_progress
) -> KnowledgeAnswers:
    """The model's answers to these questions; those that the cache has are not asked again."""
    failed: dict[str, str] = {}
    at = timestamp()
    answers = [
        Answer(question.name, concept, verdict, "llm", endpoint.model, at)
        for question, verdicts in answered(questions, endpoint, cache, failed, tell=tell)
        for concept, verdict in verdicts.items()
    ]
    return KnowledgeAnswers(Knowledge.of(answers), failed)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different: of a concept that is answered twice, neither answer is sure."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise RefusedAnswer("answered twice for the same concept")
    return unique


def parse_verdicts(concepts: Sequence[str], text: str) -> dict[str, Any]:
    """One JSON object that says yes, no or unknown of exactly these concepts; anything else is refused."""
    try:
        plain = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
        parsed = json.loads(plain, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise RefusedAnswer(f"answered no JSON object: {text[:60]!r}") from None
    if not isinstance(parsed, dict) or set(parsed) != set(concepts):
        raise RefusedAnswer(f"answered for other concepts than it was asked about: {text[:60]!r}")
    wrong = [verdict for verdict in parsed.values() if verdict not in ("yes", "no", "unknown")]
    if wrong:
        raise RefusedAnswer(f"answered {str(wrong[0])[:20]!r} where only yes, no or unknown count")
    return {concept: parsed[concept] for concept in concepts}
