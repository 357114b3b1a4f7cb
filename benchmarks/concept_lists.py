"""Proposed lists against hand-made ones and random words, at equal size and with the same settings.

    python -m benchmarks.concept_lists [--shared ../shared] [--fruits ccr-demo/store] [--data pets,cub] [--seeds 3]

Class names alone make the list: WordNet and the generic list propose, `choose` keeps as many as the hand-made list has,
on training images. Bundled texts, the defaults of `ccr fit`, 12 concepts per image. "Unrefined": concepts as their
texts say; "ahead": that minus the same with random words. "Refined": mean over seeds, the least and the largest.
On CUB, over those concepts of a list that people annotated as attributes: "AUC", how well the scores of their texts
tell the classes that have them; "truth", of those among the five largest contributions to a refined prediction, the
share that people saw in the image's class, and beside it the share that naming them at random would have. `--only
"proposed and chosen"` prints the rows of one list.

    python -m benchmarks.concept_lists --draw 50

prints so many of WordNet's proposals for each data set (--data cifar10,fruits), drawn at random, for a person to read.

    python -m benchmarks.concept_lists --worlds [--fruits ccr-demo/store] [--lists]

proposes for the class names of `WORLDS`, chooses five per class where there are photos, and scores both lists by the
verdicts in benchmarks/concept_verdicts.csv: could a photo of this domain show the concept, could one of these classes,
and is it true of the class that it was proposed for? --lists prints every concept with its verdict.

    python -m benchmarks.concept_lists --statements FILE.csv

writes what is proposed for the class names of `FOR_A_JUDGE`, in random order and without any verdict: id, world,
classes, concept, class. A row with a class says that the concept is true of it; one without only that a photo of these
classes may show it. With --verdicts FILE.csv (id; plausible: yes or no; true: yes, some or no, empty in rows without a
class), which a judge writes, it prints the shares instead, and proposes nothing.

    python -m benchmarks.concept_lists --times

takes the seconds of a processor that proposing, choosing and checking need for 10, 100 and 1,000 of ImageNet's class
names, with the embedding of all texts, and how many texts a core embeds per second.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from csv import DictReader, DictWriter
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

from benchmarks.attributes import phrase
from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.controls import list_worth
from ccr.data.store import EmbeddingStore
from ccr.encoders import Encoder, load_encoder
from ccr.geometry import unit_rows
from ccr.labels import Part
from ccr.vocab import embed_concepts, random_words, read_concepts
from ccr.vocab.check import check_texts
from ccr.vocab.choose import choose, class_statistics
from ccr.vocab.domains import fitting_domains, read_domains
from ccr.vocab.proposals import Proposal, Proposals, label_texts, reasoned_proposals, wordnet_proposals
from ccr.vocab.wordnet import WordNet
from ccr_lab.experiments.attributes import auc_by_column, explanation_truth

#: Data sets with class names.
DATA = ("fruits", "cifar10", "pets", "flowers", "cub")
#: Lists for data sets that have none of their own: as many as this, drawn from the published list for ImageNet.
DRAWN = 128
DEMO = Path(__file__).parents[1] / "src" / "ccr" / "data" / "demo_concepts.txt"

VERDICTS = Path(__file__).with_name("concept_verdicts.csv")
#: Concepts per class that are chosen, as `ccr concepts choose` does it.
PER_CLASS = 5


class World(NamedTuple):
    """Class names of one domain, and the file of embeddings that has photos of them, if there is one."""

    classes: tuple[str, ...]
    photos: str | None = None


#: Judged when no rule had been made on them, the last ten by judges who had made none; today's rules were made on all.
GROUPS = {
    **dict.fromkeys(("sea animals", "furniture", "clothes", "trees"), "the next four"),
    **dict.fromkeys(("vegetables", "reptiles and amphibians", "boats", "office supplies"), "the next six"),
    **dict.fromkeys(("jewellery", "farm animals"), "the next six"),
    **dict.fromkeys(("electronics", "fish", "street furniture", "shoes"), "the last four"),
}
WORLDS = {
    "waste": World(("cardboard", "glass", "metal", "paper", "plastic", "trash")),
    "steel defects": World(("crazing", "inclusion", "patches", "pitted surface", "rolled-in scale", "scratches")),
    "skin lesions": World(
        (
            *("actinic keratosis", "basal cell carcinoma", "dermatofibroma", "melanoma", "nevus"),
            *("pigmented benign keratosis", "seborrheic keratosis", "squamous cell carcinoma", "vascular lesion"),
        )
    ),
    "fruit": World(
        (
            *("Anjou", "Cantaloupe", "Golden-Delicious", "Granny-Smith", "Honeydew-Melon", "Kiwi", "Lemon"),
            *("Nectarine", "Orange", "Peach", "Pink-Lady", "Red-Delicious", "Satsumas", "Watermelon"),
        ),
        "fruits",
    ),
    "birds": World(
        (
            *("Black footed Albatross", "Red winged Blackbird", "Painted Bunting", "Cardinal", "Gray Catbird"),
            *("American Crow", "Mallard", "Ruby throated Hummingbird", "Blue Jay", "Barn Swallow"),
        ),
        "cub",
    ),
    "dogs": World(
        (
            *("beagle", "boxer", "chihuahua", "great pyrenees", "newfoundland"),
            *("pomeranian", "pug", "saint bernard", "samoyed", "yorkshire terrier"),
        ),
        "pets",
    ),
    "rooms": World(
        (
            *("bathroom", "bedroom", "kitchen", "living room", "dining room", "office", "garage", "library"),
            *("corridor", "stairwell"),
        )
    ),
    "vehicles": World(
        (
            *("beach wagon", "bullet train", "convertible", "freight car", "go-kart", "limousine", "moving van"),
            *("school bus", "sports car", "tractor"),
        ),
        "tiny_imagenet",
    ),
    "tools": World(
        (
            *("hammer", "screwdriver", "wrench", "pliers", "saw", "drill", "chisel", "tape measure", "axe"),
            "paintbrush",
        )
    ),
    "leaf diseases": World(
        (
            *("apple scab", "black rot", "cedar apple rust", "healthy", "powdery mildew", "early blight"),
            *("late blight", "leaf mold", "septoria leaf spot", "bacterial spot"),
        )
    ),
    "textiles": World(
        ("denim", "corduroy", "velvet", "lace", "silk", "tweed", "knit", "leather", "canvas", "felt"),
    ),
    "dishes": World(
        ("guacamole", "ice cream", "mashed potato", "meat loaf", "pizza", "potpie", "pretzel"), "tiny_imagenet"
    ),
    "landscapes": World(("buildings", "forest", "glacier", "mountain", "sea", "street"), "scenes"),
    "insects": World(
        ("ladybug", "fly", "bee", "grasshopper", "cockroach", "mantis", "dragonfly", "monarch"), "tiny_imagenet"
    ),
    "instruments": World(("guitar", "violin", "trumpet", "drum", "flute", "piano", "harp", "saxophone")),
    "minerals": World(("quartz", "pyrite", "malachite", "calcite", "fluorite", "amethyst", "obsidian")),
    "sea animals": World(
        ("shark", "dolphin", "octopus", "jellyfish", "starfish", "crab", "seahorse", "sea turtle"),
    ),
    "furniture": World(("chair", "table", "sofa", "bed", "desk", "wardrobe", "bookcase", "stool")),
    "clothes": World(("shirt", "dress", "coat", "skirt", "jeans", "hat", "sock", "glove")),
    "trees": World(("oak", "pine", "birch", "maple", "palm", "willow", "cypress", "beech")),
    "vegetables": World(
        (
            *("carrot", "broccoli", "cauliflower", "cucumber", "eggplant", "pumpkin", "radish", "asparagus"),
            "celery",
        )
    ),
    "reptiles and amphibians": World(
        ("crocodile", "chameleon", "iguana", "cobra", "tortoise", "salamander", "tree frog", "gecko"),
    ),
    "boats": World(("canoe", "sailboat", "kayak", "gondola", "catamaran", "tugboat", "ferry", "submarine")),
    "office supplies": World(
        ("stapler", "scissors", "pencil", "envelope", "paper clip", "ruler", "notebook", "eraser"),
    ),
    "jewellery": World(("necklace", "bracelet", "ring", "brooch", "earring", "tiara", "pendant")),
    "farm animals": World(("cow", "sheep", "pig", "goat", "horse", "donkey", "hen", "turkey")),
    "electronics": World(
        ("laptop", "keyboard", "mouse", "monitor", "printer", "smartphone", "headphones", "tablet"),
    ),
    "fish": World(("salmon", "trout", "carp", "pike", "eel", "goldfish", "tuna", "perch")),
    "street furniture": World(
        (
            *("bench", "fire hydrant", "mailbox", "street light", "parking meter", "trash can", "bus stop"),
            "phone booth",
        )
    ),
    "shoes": World(("sneaker", "boot", "sandal", "slipper", "loafer", "moccasin", "clog", "high heel")),
}
#: Named before the last rules were made, and before any of their concepts was seen, for a judge who made none of them.
FOR_A_JUDGE = {
    "aircraft": World(
        ("airliner", "biplane", "helicopter", "glider", "seaplane", "airship", "hot-air balloon", "fighter jet"),
    ),
    "baked goods": World(("croissant", "bagel", "baguette", "muffin", "doughnut", "cookie", "scone", "brioche")),
    "garden things": World(
        ("wheelbarrow", "lawn mower", "watering can", "rake", "shovel", "garden hose", "flowerpot", "hedge trimmer"),
    ),
    "primates": World(
        ("gorilla", "chimpanzee", "orangutan", "gibbon", "baboon", "lemur", "macaque", "marmoset"),
    ),
}


class Case(NamedTuple):
    """A data set: its name, training and test images, the hand-made list and what it is, and CUB's attributes: which
    class (in order of name) has which, by phrase."""

    name: str
    train: Part
    test: Part
    made: list[str]
    kind: str
    attributes: dict[str, np.ndarray]


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--fruits", type=Path, help="store of the demo's photos, made by `ccr demo`")
    parser.add_argument("--most", type=int, default=8000, help="training and test images of CIFAR-10, at most")
    parser.add_argument("--data", default=",".join(DATA), help="which data sets, joined by commas")
    parser.add_argument("--seeds", type=int, default=3, help="refined models per list")
    parser.add_argument("--only", help="only the rows of this list, such as 'proposed and chosen'")
    parser.add_argument("--draw", type=int, help="only print so many proposals, drawn at random")
    add_shared_option(parser)
    parser.add_argument("--worlds", action="store_true", help="score proposed lists by the verdicts of a reader")
    parser.add_argument("--lists", action="store_true", help="with --worlds: also print every concept")
    parser.add_argument("--statements", type=Path, help="write what is proposed for worlds that have no verdicts")
    parser.add_argument("--verdicts", type=Path, help="with --statements: score them by a judge's verdicts")
    parser.add_argument("--times", action="store_true", help="only take the time of proposing, choosing and checking")
    given = parser.parse_args()
    if given.verdicts:
        print("\n".join(judged_table(_read_rows(given.statements), _read_rows(given.verdicts))))
        return
    encoder, wordnet = load_encoder("bundled"), WordNet.open()
    if given.statements:
        _write_statements(given.statements, encoder, wordnet)
        return
    if given.times:
        _take_times(given.shared, encoder, wordnet)
        return
    if given.worlds:
        _read_worlds(given.shared, given.fruits, encoder, wordnet, lists=given.lists)
        return
    if not given.draw:
        print("| data | list | concepts | unrefined, % | ahead | refined, % | AUC (attributes) | truth (random) |")
        print("|---|---|--:|--:|--:|--:|--:|--:|")
    for case in cases(given.shared, given.fruits, given.most):
        if case.name in given.data.split(","):
            if given.draw:
                _draw(case, given.draw, encoder, wordnet)
            else:
                _measure(case, encoder, wordnet, range(given.seeds), only=given.only)


def _measure(case: Case, encoder: Encoder, wordnet: WordNet, seeds: range, *, only: str | None) -> None:
    """One row for each of the three lists, or for one of them."""
    words = embed_concepts(random_words(len(case.made), seed=0, exclude=_classes(case)), encoder)
    lists = {case.kind: case.made, "proposed and chosen": proposed(case, encoder, wordnet)}
    honest = without_class_names(case, wordnet)
    if len(honest) < len(case.made):
        lists[f"{case.kind}, without class names"] = honest
    embedded = {kind: embed_concepts(names, encoder) for kind, names in lists.items()} | {"random words": words}
    for kind, concepts in embedded.items():
        if only in (None, kind):
            print(_row(case, kind, concepts, words, seeds), flush=True)


def _draw(case: Case, count: int, encoder: Encoder, wordnet: WordNet) -> None:
    """So many of WordNet's proposals, with the class each is for: of several the first."""
    own = [item for item in candidates(case, encoder, wordnet).items if item.origins[0].source == "wordnet"]
    for row in np.random.default_rng(0).permutation(len(own))[:count]:
        origin = own[row].origins[0]
        print(f"{case.name}: {own[row].concept} ({origin.class_name}; {origin.sentence})")


def cases(shared: Path, fruits: Path | None, most: int) -> Iterator[Case]:
    if fruits is not None:
        store = EmbeddingStore.open(require(fruits))
        train, test = store.select(rows=np.flatnonzero(store.splits != "test")), store.select("test")
        parts = Part(np.array(train.X), train.y), Part(np.array(test.X), test.y)
        yield Case("fruits", *parts, read_concepts(DEMO), "written by hand", {})
    for name in ("cifar10", "pets", "flowers", "cub"):
        data = np.load(require(shared / "embeddings" / f"{name}.npz"))
        labels = np.array([str(label) for label in data["names"]])[data["y"].astype(int)]
        train_rows = (
            data["is_train"] if "is_train" in data.files else np.random.default_rng(0).random(len(labels)) < 0.7
        )
        parts = (
            Part(data["X"][rows].astype(np.float32), labels[rows])
            for rows in (np.flatnonzero(train_rows)[:most], np.flatnonzero(~train_rows)[:most])
        )
        listed = shared / "concepts" / f"{name}.txt"
        made, kind = (
            read_concepts(require(listed if listed.exists() else listed.with_name("imagenet.txt"))),
            "published",
        )
        if not listed.exists():
            kind = "published for ImageNet, drawn"
            made = [made[row] for row in np.random.default_rng(0).permutation(len(made))[:DRAWN]]
        yield Case(name, *parts, made, kind, _attributes(data) if name == "cub" else {})


def _attributes(data: np.lib.npyio.NpzFile) -> dict[str, np.ndarray]:
    order = np.argsort([str(name) for name in data["names"]])
    truth = data["attributes"][order] >= 50
    used = np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0))
    return {_bare(phrase(str(data["attribute_names"][column]))): truth[:, column] for column in used}


def _bare(text: str) -> str:
    """A concept's words that matter, sorted: "a yellow beak" and "yellow bill color" are the same."""
    same = {"beak": "bill", "gray": "grey", "wings": "wing", "eyes": "eye"}
    left_out = {"a", "an", "the", "with", "color", "colour", "shape", "pattern", "primary"}
    words = (same.get(word, word) for word in text.lower().replace("-", " ").split())
    return " ".join(sorted(word for word in words if word not in left_out))


def _classes(case: Case) -> list[str]:
    return sorted({str(label) for label in case.train.y})


def candidates(case: Case, encoder: Encoder, wordnet: WordNet) -> Proposals:
    """What WordNet, its senses chosen by training images, and the generic list propose."""
    return _candidates(_classes(case), case.train, encoder, wordnet)


def _candidates(classes: list[str], train: Part | None, encoder: Encoder, wordnet: WordNet) -> Proposals:
    """What is proposed for class names, with the photos where there are any."""
    photos = None
    if train is not None:
        found = class_statistics(train.X, train.y)
        photos = dict(zip(map(str, found.classes), unit_rows(found.means - found.mean), strict=True))
    return reasoned_proposals(classes, wordnet, embed=encoder.embed_texts, photos=photos)


def proposed(case: Case, encoder: Encoder, wordnet: WordNet) -> list[str]:
    """As many concepts as the hand-made list has, from class names and training images."""
    kept = chosen(candidates(case, encoder, wordnet), case.train, len(case.made), encoder)
    return [item.concept for item in kept]


def chosen(proposals: Proposals, train: Part, size: int, encoder: Encoder) -> list[Proposal]:
    """The proposals that `ccr concepts choose` keeps on these images."""
    found, names = class_statistics(train.X, train.y), proposals.names
    classes = [str(name) for name in found.classes]
    control = encoder.embed_texts(random_words(64, seed=0, exclude=[*names, *classes]))
    texts = encoder.embed_texts(names)
    rows = choose(found, texts, size=size, control=control, reasons=proposals.reasons(classes)).rows
    return [proposals.items[row] for row in rows]


def without_class_names(case: Case, wordnet: WordNet) -> list[str]:
    """The hand-made list as it is held to the rule of proposals: nothing that gives a label away."""
    classes = _classes(case)
    leaking = label_texts(classes, wordnet_proposals(classes, wordnet).senses)
    found = check_texts(case.made, leaking=leaking)
    return [name for name, problems in zip(case.made, found, strict=True) if "label" not in {p.kind for p in problems}]


def _row(case: Case, kind: str, concepts: Concepts, words: Concepts, seeds: range) -> str:
    worth = list_worth(concepts, words, train=case.train, test=case.test)
    models = [
        ConceptClassifier(concepts, coder=HardThreshold(length=12), random_state=seed).fit(case.train.X, case.train.y)
        for seed in seeds
    ]
    refined = 100 * np.array([model.score(case.test.X, case.test.y) for model in models])
    gap = "" if concepts is words else f"{100 * worth.ahead:+.1f}"
    accuracies = f"{refined.mean():.1f} ({refined.min():.1f} to {refined.max():.1f})"
    meaning = f"{_agreement(case, concepts)} | {explained_truth(case, models[0])}"
    return f"| {case.name} | {kind} | {len(concepts)} | {100 * worth.accuracy:.1f} | {gap} | {accuracies} | {meaning} |"


def explained_truth(case: Case, model: ConceptClassifier) -> str:
    """Of the concepts among the five largest contributions that are attributes, the share that people saw."""
    attributes = [case.attributes.get(_bare(name)) for name in model.concepts_.names]
    known = np.array([attribute is not None for attribute in attributes])
    if not known.any():
        return ""
    classes, y = np.unique(case.test.y, return_inverse=True)
    nothing = np.zeros(len(classes), dtype=bool)
    seen = np.stack([nothing if attribute is None else attribute for attribute in attributes], axis=1)
    codes = model.transform(case.test.X)
    named, true = (
        explanation_truth(codes, model.head_, y, table).seen.sum()
        for table in (np.broadcast_to(known, seen.shape), seen)
    )
    return f"{true / named:.3f} ({seen[y][:, known].mean():.3f})" if named else ""


def _agreement(case: Case, concepts: Concepts) -> str:
    """Mean AUC over those concepts that are attributes, by the scores of their texts on test images."""
    rows = [row for row, name in enumerate(concepts.names) if _bare(name) in case.attributes]
    if not rows:
        return ""
    found = class_statistics(case.test.X, case.test.y)
    scores = (found.means - found.mean) @ _centred(concepts.embeddings)[rows].T
    truth = np.stack([case.attributes[_bare(concepts.names[row])] for row in rows], axis=1)
    return f"{auc_by_column(scores, truth).mean():.3f} ({len(rows)})"


def _centred(rows: np.ndarray) -> np.ndarray:
    return unit_rows(rows - rows.mean(axis=0))


def _read_worlds(shared: Path, fruits: Path | None, encoder: Encoder, wordnet: WordNet, *, lists: bool) -> None:
    """A row for the proposed list of every world, and one for the chosen list where there are photos."""
    verdicts = _verdicts()
    print("| classes | list | concepts | plausible, % | for these, % | said of a class | true of it, % | not judged |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    shown: list[str] = []
    every: dict[tuple[str, str], tuple[list[str | None], list[str | None]]] = {}
    for name, world in WORLDS.items():
        train = _photos(world, shared, fruits)
        proposals = _candidates(list(world.classes), train, encoder, wordnet)
        kinds = {"proposed": list(proposals.items)}
        if train is not None:
            kinds["chosen"] = chosen(proposals, train, PER_CLASS * len(world.classes), encoder)
        for kind, items in kinds.items():
            plausible: list[str | None] = [verdicts.get((name, item.concept, "")) for item in items]
            true: list[str | None] = [verdicts.get((name, *pair)) for pair in _said(items)]
            print(_scored(name, kind, plausible, true), flush=True)
            total = every.setdefault((GROUPS.get(name, "the first sixteen"), kind), ([], []))
            total[0].extend(plausible)
            total[1].extend(true)
        shown += _shown(name, world, kinds, verdicts) if lists else []
    for (name, kind), found in every.items():
        print(_scored(name, kind, *found))
    print("\n".join(["", *shown]))


def _write_statements(path: Path, encoder: Encoder, wordnet: WordNet) -> None:
    """Every statement of the proposed lists, without names of sources, in random order."""
    rows = []
    for name, world in FOR_A_JUDGE.items():
        items = list(_candidates(list(world.classes), None, encoder, wordnet).items)
        said = _said(items) + [(item.concept, "") for item in items if not item.tied]
        rows += [(name, ", ".join(world.classes), concept, label) for concept, label in said]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = DictWriter(file, ["id", "world", "classes", "concept", "class"])
        writer.writeheader()
        for number, row in enumerate(np.random.default_rng(0).permutation(len(rows))):
            writer.writerow(dict(zip(writer.fieldnames, [number, *rows[row]], strict=True)))


def _read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(DictReader(file))


def judged_table(statements: list[dict[str, str]], verdicts: list[dict[str, str]]) -> list[str]:
    """A row of shares for every world and one for all of them, as Markdown; a concept is plausible where every row of
    it is."""
    given = {row["id"]: row for row in verdicts}
    worlds = [*dict.fromkeys(row["world"] for row in statements), None]
    lines = [
        "| classes | concepts | plausible, % | said of a class | true of it, % | of some only, % | not judged |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for world in worlds:
        own = [row for row in statements if world in (None, row["world"])]
        plausible: dict[tuple[str, str], str | None] = {}
        for row in own:
            key, found = (row["world"], row["concept"]), _verdict(given, row, "plausible")
            plausible[key] = found if plausible.get(key, "yes") == "yes" else plausible[key]
        fits, true = list(plausible.values()), [_verdict(given, row, "true") for row in own if row["class"]]
        shares = f"{_share(fits, 'yes')} | {len(true)} | {_share(true, 'yes')} | {_share(true, 'some')}"
        missing = fits.count(None) + true.count(None)
        lines.append(f"| {world or 'all'} | {len(fits)} | {shares} | {missing} |")
    return lines


def _verdict(given: dict[str, dict[str, str]], row: dict[str, str], column: str) -> str | None:
    """A judge's word on a statement, or None; a row counts as judged if it is one of yes, some and no."""
    found = given.get(row["id"], {}).get(column, "").strip().lower()
    return found if found in ("yes", "some", "no") else None


def _take_times(shared: Path, encoder: Encoder, wordnet: WordNet) -> None:
    """A row for every number of classes, in seconds of a processor, so that other work changes little."""
    data = np.load(require(shared / "embeddings" / "imagenet_sample.npz"))
    names = [str(label).split(",")[0] for label in data["names"]]
    print("| classes | texts | propose, s | choose, s | check of words, s |")
    print("|--:|--:|--:|--:|--:|")
    rng = np.random.default_rng(0)
    # Reading WordNet's files and starting the encoder takes as long for any number of classes.
    _candidates(names[:2], None, encoder, wordnet)
    for count in (10, 100, 1000):
        classes = list(dict.fromkeys(names[:: len(names) // count]))[:count]
        started = process_time()
        proposals = _candidates(classes, None, encoder, wordnet)
        proposed_at = process_time()
        # Ten images per class, around the one that there is.
        rows = np.repeat(data["X"][:: len(names) // count][: len(classes)].astype(np.float32), 10, axis=0)
        images = unit_rows(rows + 0.02 * rng.normal(size=rows.shape).astype(np.float32))
        found = class_statistics(images, np.repeat(np.array(classes), 10))
        texts = embed_concepts(proposals.names, encoder).embeddings
        control = encoder.embed_texts(random_words(64, seed=0, exclude=[*proposals.names, *classes]))
        reasons = proposals.reasons([str(name) for name in found.classes])
        choose(found, texts, size=min(1024, PER_CLASS * len(classes)), control=control, reasons=reasons)
        chosen_at = process_time()
        said = wordnet_proposals(classes, wordnet)
        fits = fitting_domains(classes, said.senses, wordnet)
        leaking = label_texts(classes, said.senses, wordnet)
        check_texts(proposals.names, leaking=leaking, wordnet=wordnet, domains=fits, tied=proposals.names[:1])
        times = proposed_at - started, chosen_at - proposed_at, process_time() - chosen_at
        print(
            f"| {len(classes)} | {len(proposals.items)} | {' | '.join(f'{value:.1f}' for value in times)} |", flush=True
        )
    generic = list(dict.fromkeys(text for domain in read_domains().values() for _, text in domain.concepts))
    for kind, texts in {"generic concepts": generic, "random words": random_words(1000, seed=0)}.items():
        started = process_time()
        embed_concepts(texts, encoder)
        print(f"{len(texts) / (process_time() - started):.0f} {kind} per second of one core")


def _verdicts() -> dict[tuple[str, str, str], str]:
    """Verdicts by world, concept and class: yes, some (true of some members of the class) or no. With an empty class,
    on plausibility: yes (a photo of one of these classes may show it), domain (only one of other classes of the same
    domain) or no."""
    with VERDICTS.open(encoding="utf-8", newline="") as file:
        return {(row["world"], row["concept"], row["class"]): row["verdict"] for row in DictReader(file)}


def _photos(world: World, shared: Path, fruits: Path | None) -> Part | None:
    """Training images of a world's classes; names of several words are matched by the first."""
    if world.photos is None or (world.photos == "fruits" and fruits is None):
        return None
    if world.photos == "fruits":
        assert fruits is not None
        store = EmbeddingStore.open(require(fruits))
        part = store.select(rows=np.flatnonzero((store.splits != "test") & np.isin(store.labels, world.classes)))
        return Part(np.array(part.X), part.y)
    data = np.load(require(shared / "embeddings" / f"{world.photos}.npz"))
    names = np.array([str(label).split(",")[0] for label in data["names"]])
    train = data["is_train"] if "is_train" in data.files else np.ones(len(data["y"]), dtype=bool)
    labels = names[data["y"].astype(int)]
    rows = np.flatnonzero(train & np.isin(labels, world.classes))
    return Part(data["X"][rows].astype(np.float32), labels[rows])


def _said(items: list[Proposal]) -> list[tuple[str, str]]:
    """Every concept with every class that it was proposed for."""
    pairs = [(item.concept, origin.class_name) for item in items for origin in item.origins if origin.class_name]
    return list(dict.fromkeys(pairs))


def _scored(world: str, kind: str, plausible: list[str | None], true: list[str | None]) -> str:
    fitting = f"{_share(plausible, 'yes', 'domain')} | {_share(plausible, 'yes')}"
    missing = plausible.count(None) + true.count(None)
    return f"| {world} | {kind} | {len(plausible)} | {fitting} | {len(true)} | {_share(true, 'yes')} | {missing} |"


def _share(verdicts: list[str | None], *counted: str) -> str:
    """The percentage of what was judged that has one of these verdicts."""
    judged = [verdict for verdict in verdicts if verdict is not None]
    return f"{100 * sum(verdict in counted for verdict in judged) / len(judged):.0f}" if judged else ""


def _shown(
    name: str, world: World, kinds: dict[str, list[Proposal]], verdicts: dict[tuple[str, str, str], str]
) -> list[str]:
    """A world's lists as text: what was proposed by verdict, then what of it was chosen, in the order of choice."""
    lines = [f"**{name}** ({', '.join(world.classes)})", ""]
    items = kinds["proposed"]
    said: dict[str, list[str]] = {}
    for concept, label in _said(items):
        said.setdefault(verdicts.get((name, concept, label), "not judged"), []).append(f"{concept} ({label})")
    fitting: dict[str, list[str]] = {}
    for item in items:
        fitting.setdefault(verdicts.get((name, item.concept, ""), "not judged"), []).append(item.concept)
    titles = {"yes": "true", "some": "true of some only", "no": "not true", "not judged": "not judged"}
    lines += [f"- said of a class, {titles[key]}: {', '.join(said[key])}." for key in titles if key in said]
    titles = {"yes": "plausible", "domain": "plausible for other classes of the domain only", "no": "implausible"}
    titles["not judged"] = "not judged"
    lines += [f"- {titles[key]}: {', '.join(fitting[key])}." for key in titles if key in fitting]
    if "chosen" in kinds:
        lines.append(f"- chosen on photos: {', '.join(item.concept for item in kinds['chosen'])}.")
    return [*lines, ""]


if __name__ == "__main__":
    main()
