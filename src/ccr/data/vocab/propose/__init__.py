"""From class names to candidate concepts: WordNet, a language model, and a list that fits any photo."""

from ccr.data.vocab.propose.generic import generic_proposals
from ccr.data.vocab.propose.offline import FromWordNet, label_texts, wordnet_proposals
from ccr.data.vocab.propose.proposals import Origin, Proposal, Proposals, read_origins, together, written_by_hand
from ccr.data.vocab.propose.wordnet import WordNet

__all__ = [
    "FromWordNet",
    "Origin",
    "Proposal",
    "Proposals",
    "WordNet",
    "generic_proposals",
    "label_texts",
    "read_origins",
    "together",
    "wordnet_proposals",
    "written_by_hand",
]
