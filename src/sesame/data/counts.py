"""A token table from counts: tokens that stand near the same tokens get similar vectors.

    PPMI(a, b) = max(0, log p(a, b) / (p(a) q(b))),  q ~ p^0.75;   PPMI ≈ U Σ Vᵀ;   table = U √Σ

Paper: Levy, Goldberg & Dagan 2015, "Improving Distributional Similarity with Lessons Learned from Word Embeddings".
What is unusual: this is not a model of its own here but the start of one. Half a minute of counting spares a small model, on
a small budget, the long plateau on which it learns which words go together (docs/log.md).
"""

import numpy as np
import numpy.typing as npt

from sesame.data.parts import Part

WINDOW = 8  # tokens to each side
TOKENS = 5_000_000  # more text moves the vectors little
SMOOTH = 0.75  # Levy et al.: rare contexts weigh less
ROUNDS = 4  # power iterations of the decomposition

Table = npt.NDArray[np.float32]


def count_table(part: Part, vocab: int, width: int, std: float) -> Table:
    """Vectors of standard deviation `std` for the tokens of a text, (vocab, width); zeros for those that never occur."""
    from scipy import sparse  # type: ignore[import-untyped]
    from sklearn.utils.extmath import randomized_svd  # type: ignore[import-untyped]

    ids = _ids(part)
    near = sparse.csr_matrix((vocab, vocab), dtype=np.float64)
    for step in range(1, WINDOW + 1):
        left, right = ids[:-step], ids[step:]
        real = (left >= 0) & (right >= 0)
        ones = np.ones(int(real.sum()))
        near = near + sparse.coo_matrix((ones, (left[real], right[real])), shape=(vocab, vocab)).tocsr()
    near = (near + near.T).tocoo()
    if near.nnz == 0:
        return np.zeros((vocab, width), dtype=np.float32)
    often = np.bincount(near.row, near.data, vocab)
    context = often**SMOOTH
    expected = often[near.row] * context[near.col] / context.sum()
    information = np.log(near.data / expected)
    above = information > 0
    shape = (information[above], (near.row[above], near.col[above]))
    most = min(width, vocab - 1)
    u, size, _ = randomized_svd(sparse.csr_matrix(shape, shape=(vocab, vocab)), most, n_iter=ROUNDS, random_state=0)
    table = np.zeros((vocab, width), dtype=np.float32)
    table[:, :most] = u * np.sqrt(size)
    seen = often > 0
    table[seen] -= table[seen].mean(0)
    spread = float(table[seen].std())
    return table * (std / spread) * seen[:, None] if spread > 0 else table


def _ids(part: Part) -> npt.NDArray[np.int64]:
    """The first tokens of a text, with a gap behind every document that no window crosses."""
    offsets = np.asarray(part.store.sentences)
    gap = np.full(WINDOW, -1, dtype=np.int64)
    pieces: list[npt.NDArray[np.int64]] = []
    size = 0
    for first, last in part.documents.tolist():
        pieces += [np.asarray(part.store.tokens[offsets[first] : offsets[last]], dtype=np.int64), gap]
        size += len(pieces[-2])
        if size >= TOKENS:
            break
    return np.concatenate(pieces)
