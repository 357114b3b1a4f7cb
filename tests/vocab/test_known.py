"""First tables of knowledge: what proposals, WordNet and a language model (a real local server) say of which class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr.errors import CCRError
from ccr.knowledge import Answer, Knowledge
from ccr.vocab.llm import PER_REQUEST, RefusedAnswer, ask_model, estimated, model_questions, parse_verdicts
from ccr.vocab.proposals import (
    Origin,
    Proposal,
    known_path,
    proposed_knowledge,
    wordnet_knowledge,
    wordnet_proposals,
    write_proposed,
)
from ccr.vocab.wordnet import WordNet
from tests.vocab.test_llm import Server, completion, server  # noqa: F401 (fixture)

NAMES = st.text("abcdefgh ", min_size=1, max_size=8).map(str.strip).filter(bool)


def said(concept: str, label: str | None = "pear", source: str = "wordnet") -> Proposal:
    return Proposal(concept, (Origin(label, source, "part", "a sentence"),))


def asked_for(body: dict[str, Any]) -> list[str]:
    """The concepts that a request is about."""
    content = body["messages"][0]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    found: list[str] = json.loads(text.split("\n")[2])
    return found


def verdicts(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    return completion(json.dumps(dict.fromkeys(asked_for(body), "no")))  # type: ignore[no-any-return]


def test_proposals_are_yes_for_their_classes_and_generic_ones_for_none() -> None:
    both = Proposal("stem", (Origin("pear", "wordnet", "part", ""), Origin("plum", "llm", "parts", "")))
    known = proposed_knowledge([both, said("close-up", None, "generic")])
    assert [(one.label, one.concept, one.answer, one.source) for one in known] == [
        ("pear", "stem", "yes", "wordnet"),
        ("plum", "stem", "yes", "llm"),
    ]
    assert len(proposed_knowledge([])) == 0


def test_a_table_that_was_corrected_survives_another_proposal(tmp_path: Path) -> None:
    path = known_path(tmp_path / "list.txt")
    assert path.name == "list-knowledge.csv"
    write_proposed([said("stem"), said("rind"), said("old")], path)
    corrected = [
        Answer("pear", "stem", "no", "person", "Ada"),
        Answer("pear", "rind", "no", "wordnet"),  # the cell was corrected, its source was not
        Answer("pear", "old", "yes", "wordnet"),  # nobody's: it goes when it is proposed no more
        Answer("pear", "mine", "yes", "file"),
    ]
    Knowledge.of(corrected).write(path)
    known = write_proposed([said("stem"), said("rind"), said("new")], path)
    assert known == Knowledge.read(path)
    answers = {one.concept: (one.answer, one.source) for one in known}
    assert answers == {
        "stem": ("no", "person"),
        "rind": ("no", "wordnet"),
        "mine": ("yes", "file"),
        "new": ("yes", "wordnet"),
    }
    assert write_proposed([said("stem"), said("rind"), said("new")], path) == known  # again: nothing changes


@pytest.mark.parametrize(
    ("phrase", "concept", "same"),
    [
        ("green skin", "green skin", True),
        ("green skin", "Green Skins", True),
        ("green skin", "the green skin", True),
        ("long slender bill", "slender bill", True),
        ("long slender bill", "bill", False),  # a word of a phrase says too little
        ("green skin", "dark green skin", False),  # more than what was said
        ("green skin", "skin green", False),
        ("red", "red stripe on yellow", False),
    ],
)
def test_wordnet_names_a_concept_by_the_same_words(phrase: str, concept: str, same: bool) -> None:
    known = wordnet_knowledge(["pear", "plum"], [concept], [said(phrase)])
    assert (known.find("pear", concept) is not None) is same
    assert known.find("plum", concept) is None


def test_wordnet_says_nothing_of_classes_that_were_not_asked_about() -> None:
    assert len(wordnet_knowledge(["plum"], ["green skin"], [said("green skin")])) == 0
    assert len(wordnet_knowledge([], [], [said("green skin")])) == 0


@given(st.lists(NAMES, max_size=6, unique=True), st.lists(NAMES, max_size=6))
def test_wordnet_never_says_no_and_knows_every_phrase_itself(concepts: list[str], phrases: list[str]) -> None:
    known = wordnet_knowledge(["pear"], concepts, [said(phrase) for phrase in phrases])
    assert {(one.answer, one.source) for one in known} <= {("yes", "wordnet")}
    assert set(known.concepts) <= set(concepts)


def test_wordnet_itself_knows_fruit() -> None:
    try:
        wordnet = WordNet.open()
    except CCRError as error:
        pytest.skip(str(error))
    found = wordnet_proposals(["Granny-Smith", "Watermelon"], wordnet).proposals
    known = wordnet_knowledge(["Granny-Smith", "Watermelon"], ["green skin", "a melon", "feathers"], found)
    assert {(one.label, one.concept) for one in known} == {("Granny-Smith", "green skin"), ("Watermelon", "a melon")}


def test_questions_are_of_one_class_and_leave_out_what_is_known() -> None:
    concepts = [f"concept {number}" for number in range(2 * PER_REQUEST + 1)]
    known = Knowledge.of([Answer("pear", "concept 0", "no"), Answer("plum", "concept 1", "unknown")])
    questions = model_questions(["pear", "plum"], concepts, known)
    assert [question.name for question in questions] == ["pear"] * 2 + ["plum"] * 2
    for name, left_out in (("pear", "concept 0"), ("plum", "concept 1")):
        listed = [json.loads(one.prompt.split("\n")[2]) for one in questions if one.name == name]
        assert [concept for part in listed for concept in part] == [one for one in concepts if one != left_out]
    assert model_questions(["pear"], ["concept 0"], known) == []


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=PER_REQUEST, unique=True))
def test_a_whole_answer_fits_what_a_model_may_say(concepts: list[str]) -> None:
    longest = json.dumps(dict.fromkeys(concepts, "unknown"), ensure_ascii=False, indent=2)
    question = model_questions(["pear"], concepts)[0]
    assert question.answer_tokens >= len(longest.encode()) // 2
    assert question.answer_tokens >= 400


@given(st.dictionaries(NAMES, st.sampled_from(["yes", "no", "unknown"]), min_size=1, max_size=8))
def test_a_good_answer_is_read_as_it_was_given(answer: dict[str, str]) -> None:
    turned = dict(reversed(answer.items()))
    assert parse_verdicts(list(answer), f"```json\n{json.dumps(turned)}\n```") == answer


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("yes", "no JSON object"),
        ('{"a": "yes", "b": "n', "no JSON object"),
        ("[" * 100_000, "no JSON object"),
        ('["a", "b"]', "other concepts"),
        ('{"a": "yes"}', "other concepts"),
        ('{"a": "yes", "b": "no", "c": "no"}', "other concepts"),
        ('{"A": "yes", "b": "no"}', "other concepts"),
        ('{"a": "yes", "b": "maybe"}', "'maybe'"),
        ('{"a": "yes", "b": true}', "'True'"),
        ('{"a": "yes", "b": ["no"]}', "only yes, no or unknown"),
        ('{"a": "yes", "b": null}', "only yes, no or unknown"),
        ('{"a": "yes", "b": "no", "a": "no"}', "twice"),
    ],
)
def test_any_other_answer_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RefusedAnswer, match=reason):
        parse_verdicts(["a", "b"], text)


def test_a_model_is_asked_again_and_a_broken_run_goes_on(server: Server, tmp_path: Path) -> None:  # noqa: F811
    questions = model_questions(["pear", "plum"], ["stem", "rind"])
    server.answers = [completion('{"stem": "yes"}'), verdicts, (500, {}, b"")]
    first = ask_model(questions, server.endpoint(attempts=2), tmp_path)
    assert set(first.failed) == {"plum"}
    assert {one.label for one in first.knowledge} == {"pear"}
    assert estimated(questions, server.endpoint(), tmp_path)[:2] == (1, 1)
    server.answers, before = [verdicts], len(server.requests)
    second = ask_model(questions, server.endpoint(), tmp_path)
    assert not second.failed
    assert len(server.requests) == before + 1  # pear's answer was kept
    for one in second.knowledge:
        assert (one.answer, one.source, one.by) == ("no", "llm", "tiny")
        assert one.at
    assert estimated(questions, server.endpoint(), tmp_path) == (0, 2, 0, 0)


def test_models_that_see_are_sent_photos_and_the_limit_that_was_priced(
    server: Server,  # noqa: F811
    tmp_path: Path,
) -> None:
    server.answers = [verdicts]
    plain, seeing = (
        model_questions(["pear"], ["stem"], pictures=pictures)
        for pictures in (None, {"pear": ["data:image/jpeg;base64,AAAA"]})
    )
    for questions in (plain, seeing):
        assert not ask_model(questions, server.endpoint(), tmp_path).failed
    assert len(server.requests) == 2  # the same question with photos is another one
    content = server.requests[1]["messages"][0]["content"]
    assert [part["type"] for part in content] == ["text", "image_url"]
    assert content[1]["image_url"] == {"url": "data:image/jpeg;base64,AAAA"}
    assert [body["max_tokens"] for body in server.requests] == [one.answer_tokens for one in (*plain, *seeing)]
    costs = [estimated(questions, server.endpoint(), tmp_path / "empty") for questions in (plain, seeing)]
    assert costs[1].prompt_tokens > costs[0].prompt_tokens
