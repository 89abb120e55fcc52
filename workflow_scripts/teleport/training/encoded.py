"""The vectors of a training step, and the scores that they give."""

from typing import Any, NamedTuple

import torch
from torch.nn.functional import normalize as unit

from teleport.maxp import Padding


class Encoded(NamedTuple):
    """The vectors of a step, with their graph: queries_QD, and passages_CD, with as many rows per passage as the
    `maxp.Padding` says, usually one."""

    queries_QD: Any
    passages_CD: Any
    padding: Padding = Padding()

    def products(self, vectors_QD):
        """[Q, P]: inner products of vectors with the passages, each by its best chunk."""
        return self.padding.best(vectors_QD @ self.passages_CD.T)

    def products_of(self, columns_Q):
        """[Q, P]: inner products of the passages in some columns (int64) with all passages, by the best pair of
        chunks."""
        scores_CP = self.products(self.passages_CD[self.padding.rows_of(columns_Q)])
        return self.padding.best(scores_CP.T, columns_Q).T

    def of_texts(self):
        """(vectors of the queries, of the passages), the latter with a row for each chunk that a passage has."""
        return self.queries_QD, self.padding.real(self.passages_CD)

    def shares(self):
        """The weight of each row of `of_texts`, float32 [Q + C]: every text has 1, shared among its chunks."""
        return torch.cat([self.queries_QD.new_ones(len(self.queries_QD)), self.padding.shares(self.passages_CD)])

    def narrowed(self, width, normalize):
        """The first `width` numbers of every vector, scaled to length 1 if `normalize`."""
        vectors = (vectors_MD[:, :width] for vectors_MD in (self.queries_QD, self.passages_CD))
        queries_QD, passages_CD = (unit(each, dim=1) if normalize else each for each in vectors)
        return self._replace(queries_QD=queries_QD, passages_CD=passages_CD)
