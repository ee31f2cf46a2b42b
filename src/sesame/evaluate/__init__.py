"""Scores, how sure they are, and what stands beside them.

Every score is a share between 0 and 1 (or a correlation between -1 and 1, an error, a number of rows), equals its oracle
(scikit-learn, SciPy, seqeval, the rules of the SQuAD script) and is never NaN: where a formula divides by nothing, the
docstring says what stands instead. Without anything to score there is no score but an error.

| file | what |
|---|---|
| classification.py | accuracy, F1, Matthews; confusion; several labels at once |
| regression.py | Pearson, Spearman, squared and absolute error |
| entities.py | spans from tags, and their F1 |
| answers.py | SQuAD: exact match, F1, the threshold of "no answer" |
| perplexity.py | how unexpected a text is to a model that reads from left to right |
| shots.py | answers to prompts, with and without examples |
| calibration.py | is 80 % sure right 80 % of the time; the temperature that mends it |
| statistics.py | intervals over seeds and over examples, paired comparison |
| baselines.py | what a simple method answers |
"""

from collections.abc import Sized

from sesame.errors import SesameError


def check_pairs(gold: Sized, said: Sized) -> None:
    """One answer for each example, and at least one example."""
    if len(gold) != len(said):
        raise SesameError(f"{len(gold):,} examples but {len(said):,} answers; give one answer for each example")
    if len(gold) == 0:
        raise SesameError("there is nothing to score; give at least one labelled example")
