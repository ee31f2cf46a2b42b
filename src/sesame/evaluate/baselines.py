"""What stands beside every result: the answers of methods that take seconds.

| task | baselines |
|---|---|
| classify | majority: the most frequent label (with several: set of labels); tf-idf: logistic regression |
| regress | mean; tf-idf: ridge regression |
| tag | majority: each word's most frequent tag |
| qa | sentence: the one that shares most words with the question; no answer, if training holds such questions |
| choice | majority: the most frequent place; tf-idf: the option nearest to the stem |

tf-idf means (1 + log tf) idf of words and pairs of words, and of runs of 3 to 5 characters inside words. Where a script
puts no spaces (Chinese, Japanese, Thai), every character is a word. A pair of texts gives both vectors and their
elementwise product. Each class is told from the rest by a logistic regression of its own (liblinear), whose C of 1, 10,
100 is chosen in three folds; training is thinned out, and this said, where it would take minutes.
"""

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sesame.data.examples import Example
from sesame.data.sentences import split_sentences
from sesame.errors import SesameError
from sesame.progress import say

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f"
WORD = rf"[{UNSPACED}]|[^\W{UNSPACED}]+"
MOST_FEATURES = 30_000  # of words, and as many of characters
LONGEST_TEXT = 2_000  # characters whose runs are counted; words are counted to the end
MOST_ROWS, MOST_WORK = 20_000, 3_000_000  # training rows; rows times classes
FEWEST_ROWS = 1_500  # to learn from, if there are that many, whatever the number of classes
STRENGTHS = (1.0, 10.0, 100.0)
FOLDS = 3


def baselines(task: str, train: list[Example], test: list[Example]) -> dict[str, list[Any]]:
    """For each baseline its answers to `test`, after learning from the labelled rows of `train`.

    Answers: classify a name (several labels: a tuple of names), regress a number, tag a tuple of tags, qa a text, choice
    the number of an option.
    """
    methods = {"classify": _classify, "regress": _regress, "tag": _tag, "qa": _qa, "choice": _choice}
    if task not in methods:
        raise SesameError(f"there is no task {task!r}; known are {', '.join(methods)}")
    labelled = [example for example in train if example.label is not None]
    if not labelled:
        raise SesameError("no training example has a label; the baselines need at least one")
    return methods[task](labelled, test)


# ---- texts as vectors -----------------------------------------------------------------------------------------------


class _Vectors:
    """tf-idf of words and of characters, two blocks that are each of length one; `own` are those of `texts`."""

    def __init__(self, texts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]

        common = {"sublinear_tf": True, "max_features": MOST_FEATURES}
        self.blocks: list[Any] = []
        if any(re.search(WORD, text) for text in texts):  # else the vectorizer would complain about an empty vocabulary
            self.blocks.append(TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), **common))
        if any(text[:LONGEST_TEXT].strip() for text in texts):
            self.blocks.append(TfidfVectorizer(analyzer="char_wb", preprocessor=_head, ngram_range=(3, 5), **common))
        self.own = _joined([block.fit_transform(texts) for block in self.blocks], len(texts))

    def __call__(self, texts: Sequence[str]) -> Any:
        return _joined([block.transform(texts) for block in self.blocks], len(texts))


def _joined(blocks: list[Any], rows: int) -> Any:
    from scipy.sparse import csr_matrix, hstack  # type: ignore[import-untyped]

    return hstack(blocks, format="csr") if blocks else csr_matrix((rows, 1))


def _head(text: str) -> str:
    return text[:LONGEST_TEXT].lower()


def _features(train: list[Example], test: list[Example]) -> tuple[Any, Any]:
    """(rows, features) of both, sparse; for pairs: first, second, their product, and its sum (twice the cosine)."""
    first, others = [example.text for example in train], [example.text for example in test]
    if not any(example.pair is not None for example in train):
        vectors = _Vectors(first)
        return vectors.own, vectors(others)
    vectors = _Vectors([*first, *(example.pair or "" for example in train)])
    own = _pairs(vectors.own[: len(train)], vectors.own[len(train) :])
    return own, _pairs(vectors(others), vectors([example.pair or "" for example in test]))


def _pairs(first: Any, second: Any) -> Any:
    from scipy.sparse import csr_matrix, hstack

    product = first.multiply(second)
    return hstack([first, second, product, csr_matrix(product.sum(1))], format="csr")


# ---- classify -------------------------------------------------------------------------------------------------------


def _classify(train: list[Example], test: list[Example]) -> dict[str, list[Any]]:
    several = any(not isinstance(example.label, str) for example in train)
    sets = [frozenset([label]) if isinstance(label := example.label, str) else frozenset(label) for example in train]
    names = sorted(frozenset().union(*sets))
    majority = Counter(tuple(sorted(one)) for one in sets).most_common(1)[0][0]
    if not test or not names:  # no names: several labels were allowed and no row has any
        return {"majority": [majority] * len(test), "tf-idf": [majority] * len(test)}
    kept = _thinned(len(train), len(names))
    x, queries = _features([train[row] for row in kept], test)
    gold = np.array([[name in sets[row] for name in names] for row in kept])
    scores = _scores(x, gold, queries, _chosen_strength(x, gold, several), several)
    if several:
        said: list[Any] = [tuple(np.array(names, dtype=object)[row > 0]) for row in scores]
    else:
        said = [names[place] for place in scores.argmax(1)]
    return {"majority": [majority if several else majority[0]] * len(test), "tf-idf": said}


def _thinned(rows: int, classes: int) -> NDArray[np.int64]:
    """Which rows to learn from: all, or as many as can be learnt from within a minute."""
    most = min(MOST_ROWS, max(FEWEST_ROWS, MOST_WORK // classes))
    if rows <= most:
        return np.arange(rows)
    say(f"the tf-idf baseline learns from {most:,} of {rows:,} training rows, drawn at random")
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def _chosen_strength(x: Any, gold: NDArray[np.bool_], several: bool) -> float:
    """C by three folds, the smallest of the best; 10 where a class has fewer than three rows."""
    if gold.sum(0).min() < FOLDS:
        return STRENGTHS[1]
    enough = max(FEWEST_ROWS, min(5_000, MOST_WORK // 25 // gold.shape[1]))  # nine models must not take longer than one
    rows = np.random.default_rng(0).permutation(len(gold))[:enough]
    fold = np.zeros(len(rows), dtype=np.int64)
    for columns in np.unique(gold[rows], axis=0):  # the rows of a class are dealt out evenly
        same = np.flatnonzero((gold[rows] == columns).all(1))
        fold[same] = np.arange(len(same)) % FOLDS
    right = dict.fromkeys(STRENGTHS, 0.0)
    for held_out in range(FOLDS):
        inside, outside = rows[fold != held_out], rows[fold == held_out]
        if not len(inside) or not len(outside):
            return STRENGTHS[1]
        for strength in STRENGTHS:
            scores = _scores(x[inside], gold[inside], x[outside], strength, several)
            said = scores > 0 if several else scores.argmax(1)
            wanted = gold[outside] if several else gold[outside].argmax(1)
            right[strength] += float((said == wanted).sum())
    return max(STRENGTHS, key=lambda strength: right[strength])


def _scores(x: Any, gold: NDArray[np.bool_], queries: Any, strength: float, several: bool) -> NDArray[np.float64]:
    """(queries, classes): log odds of each class against the rest."""
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

    classes = gold.shape[1]
    scores = np.zeros((queries.shape[0], classes))
    for at in range(classes):
        if gold[:, at].all() or not gold[:, at].any():
            scores[:, at] = np.inf if gold[0, at] else -np.inf
        elif classes == 2 and not several and at == 1:
            scores[:, 1] = -scores[:, 0]
        else:
            model = LogisticRegression(C=strength, solver="liblinear", dual=True, tol=0.01, random_state=0)
            with warnings.catch_warnings():  # a baseline that stopped a little early is still one
                warnings.filterwarnings("ignore", "Liblinear failed to converge")
                scores[:, at] = model.fit(x, gold[:, at]).decision_function(queries)
    return scores


# ---- the other tasks ------------------------------------------------------------------------------------------------


def _regress(train: list[Example], test: list[Example]) -> dict[str, list[Any]]:
    mean = float(np.mean([float(example.label) for example in train]))
    said: list[float] = []
    if test:
        from sklearn.linear_model import Ridge

        kept = [train[row] for row in _thinned(len(train), 1)]
        gold = np.array([float(example.label) for example in kept])
        x, queries = _features(kept, test)
        model = Ridge(alpha=1.0, solver="sparse_cg", random_state=0).fit(x, gold)
        said = np.clip(model.predict(queries), gold.min(), gold.max()).tolist()
    return {"mean": [mean] * len(test), "tf-idf": said}


def _tag(train: list[Example], test: list[Example]) -> dict[str, list[Any]]:
    """Unknown words are O (without an O in training: as words seen once), capitalized ones as capitalized words seen once."""
    seen: dict[str, Counter[str]] = {}
    for example in train:
        for word, tag in zip(_words(example), example.label, strict=True):
            seen.setdefault(word, Counter())[tag] += 1
    tags = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    once = [word for word, counts in seen.items() if counts.total() == 1]
    everything = Counter(tag for counts in seen.values() for tag in counts.elements())
    if not everything:
        raise SesameError("no training sentence has a tagged word; the baseline needs at least one")
    plain = Counter(tags[word] for word in once if not _capitalized(word)) or everything
    unknown = "O" if "O" in everything else plain.most_common(1)[0][0]
    capitals = Counter(tags[word] for word in once if _capitalized(word))
    capital = capitals.most_common(1)[0][0] if capitals else unknown
    return {
        "majority": [
            tuple(tags.get(word) or (capital if _capitalized(word) else unknown) for word in _words(example))
            for example in test
        ]
    }


def _words(example: Example) -> list[str]:
    return [example.text[start:end] for start, end in example.words]


def _capitalized(word: str) -> bool:
    return word[:1].isupper()


def _qa(train: list[Example], test: list[Example]) -> dict[str, list[Any]]:
    said: dict[str, list[Any]] = {"sentence": [_nearest_sentence(example) for example in test]}
    if not all(example.label for example in train):
        said["no answer"] = [""] * len(test)
    return said


def _nearest_sentence(example: Example) -> str:
    asked = _bag(example.pair or "")
    return max(split_sentences(example.text), key=lambda sentence: len(asked & _bag(sentence)), default="")


def _bag(text: str) -> set[str]:
    return set(re.findall(WORD, text.lower()))


def _choice(train: list[Example], test: list[Example]) -> dict[str, list[Any]]:
    for example in test:
        if not example.options:
            raise SesameError(f"{example.place}: there are no options to choose from; give at least one")
    place = Counter(int(example.label) for example in train).most_common(1)[0][0]
    majority = [place if place < len(example.options) else 0 for example in test]
    if not test:
        return {"majority": [], "tf-idf": []}
    kept = [train[row] for row in _thinned(len(train), 1)]
    vectors = _Vectors([text for example in kept for text in (example.text, *example.options)])
    stems = vectors([example.text for example in test])
    options = vectors([option for example in test for option in example.options])
    owners = np.repeat(np.arange(len(test)), [len(example.options) for example in test])
    likeness = np.asarray(options.multiply(stems[owners]).sum(1)).ravel()
    starts = np.searchsorted(owners, np.arange(len(test) + 1))
    nearest = [int(likeness[a:b].argmax()) for a, b in pairwise(starts)]
    return {"majority": majority, "tf-idf": nearest}
