"""The company of the other classes: "pink lady" among fruits is no cocktail, "bird" among animals no dish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ccr.data.vocab.propose.names import Named
from ccr.data.vocab.propose.wordnet import PERSON, Synset, WordNet

#: Kinds that anything belongs to.
ANYTHING = {
    *("organism", "living thing", "whole", "object", "physical entity", "entity", "matter", "solid", "substance"),
    *("artifact", "instrumentality", "natural object", "causal agent", "covering", "material", "abstraction"),
    *("animal", "plant"),  # "Russian Blue" among cats and dogs is no butterfly
}
#: A sense is at home where this share of the other classes belongs to a kind of its own.
LEAST_COMPANY = 0.1
#: Where such a share of the classes belongs to one kind, a name that few people use and whose senses are all strangers
#: is taken as unknown.
AGREED = 0.5
#: So many classes more are thought to be of other kinds.
FEW = 3


class Company:
    """Of every kind, how many classes belong to it by their most frequent sense."""

    def __init__(self, named: Sequence[Named], wordnet: WordNet) -> None:
        self._named, self._wordnet = named, wordnet
        self._counts = Counter(place for item in named for place in set(self._kinds(item.senses[0])))

    def share(self, item: Named, sense: Synset) -> float:
        """The largest share of the other classes that belongs to one kind with this sense, in [0, 1); a few classes are
        little company, however alike."""
        own = set(self._kinds(item.senses[0]))
        others = (self._counts[place] - (place in own) for place in self._kinds(sense))
        return max(others, default=0) / (len(self._named) - 1 + FEW)

    def known(self) -> list[Named]:
        """The classes whose names mean what one would think here. A name of which only the last words are known needs
        company, and so does one that means people; where most classes are of one kind, every name that few use."""
        agreed = max(self._counts.values(), default=0) >= AGREED * len(self._named) and len(self._named) > 2
        return [item for item in self._named if self._sure(item, agreed) or self._at_home(item)]

    def _at_home(self, item: Named) -> bool:
        return max(self.share(item, sense) for sense in item.senses) >= LEAST_COMPANY

    def _sure(self, item: Named, agreed: bool) -> bool:
        usual = not agreed or self._wordnet.is_common(item.head)
        return item.complete and item.senses[0].file != PERSON and usual

    def _kinds(self, sense: Synset) -> Iterator[int]:
        """The places of a sense and the kinds above it that say something."""
        for kind in (sense, *self._wordnet.above(sense)):
            if ANYTHING & set(kind.lemmas):
                return
            yield kind.place
