"""What can be chosen of the map, and what was."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Settings:
    """What was chosen on held-out anchors. `kernel_size=0` is a plain linear first step."""

    templates: tuple[str, ...] = ("{}", "a photo of {}")
    kernel_size: int = 2048
    gamma: float = 1.0
    word_ridge: float = 0.1
    bridge_ridge: float = 2.0
    text_weight: float = 10.0  # of a ViT-B/16 text vector, against 1 for a class with images
    whitening: float | None = 1.0  # shrinkage of the within-class covariance; None: plain centroids as targets
    known_words: bool = True  # use an anchor's own ViT-B/32 vector where its name is a word
    picture_template: str = "a photo of {}"
    picture_whitening: float | None = 4.0  # as `whitening`, for pictures of words
    sentence_share: float = 1.0
    picture_share: float = 1.0


CHOSEN = Settings()
SENTENCES = replace(CHOSEN, picture_share=0.0)
BASELINE = Settings(
    ("{}",),
    kernel_size=0,
    word_ridge=3.0,
    bridge_ridge=3.0,
    text_weight=0.0,
    whitening=None,
    known_words=False,
    picture_share=0.0,
)
VARIANTS = {
    "plain ridge (baseline)": BASELINE,
    "sentences alone": SENTENCES,
    "  linear first step": replace(SENTENCES, kernel_size=0),
    "  one template": replace(SENTENCES, templates=("{}",)),
    "  no whitening": replace(SENTENCES, whitening=None),
    "  no ViT-B/16 texts": replace(SENTENCES, text_weight=0.0),
    "  predicted words only": replace(SENTENCES, known_words=False),
}
PICTURE_VARIANTS = {
    "sentences alone": SENTENCES,
    "pictures alone": replace(CHOSEN, sentence_share=0.0),
    "chosen: both": CHOSEN,
    "  picture_share 0.7": replace(CHOSEN, picture_share=0.7),
    "  picture_share 1.4": replace(CHOSEN, picture_share=1.4),
    "  pictures not whitened": replace(CHOSEN, picture_whitening=None),
}
