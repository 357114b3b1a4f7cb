"""From class names to candidate concepts: WordNet, a language model, and a list of concepts by domain."""

from ccr.vocab.propose.generic import fitting_domains, generic_proposals
from ccr.vocab.propose.offline import FromWordNet, label_texts, reasoned_proposals, wordnet_proposals
from ccr.vocab.propose.proposals import Origin, Proposal, Proposals, read_origins, together, written_by_hand
from ccr.vocab.propose.wordnet import WordNet

__all__ = [
    "FromWordNet",
    "Origin",
    "Proposal",
    "Proposals",
    "WordNet",
    "fitting_domains",
    "generic_proposals",
    "label_texts",
    "read_origins",
    "reasoned_proposals",
    "together",
    "wordnet_proposals",
    "written_by_hand",
]
