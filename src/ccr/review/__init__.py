"""Review: people answer the claims of a model until every one of them is confirmed, and sign it."""

from ccr.review.decisions import Decision, Decisions
from ccr.review.questions import Review, ReviewEvidence, ReviewQuestion
from ccr.review.rounds import ReviewRound, out_of_fold, refit, review_round, review_rows, sign, unsigned

__all__ = [
    "Decision",
    "Decisions",
    "Review",
    "ReviewEvidence",
    "ReviewQuestion",
    "ReviewRound",
    "out_of_fold",
    "refit",
    "review_round",
    "review_rows",
    "sign",
    "unsigned",
]
