"""Forward and backward language modelling: what is asked, both softmaxes, and a chain of words learnt to its entropy."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sesame.backbones import BiLM, BiLMConfig, Encoder, EncoderConfig
from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.objectives import Vocab, build
from sesame.objectives.bilm import SOFTMAXES, AdaptiveSoftmax, BiLMObjectiveConfig, FullSoftmax
from sesame.text import Tokenizer
from sesame.text.train import train_tokenizer
from tests.languages import Chain, word_tokenizer

SMALL: dict[str, Any] = {"width": 64, "cell": 64, "letter_width": 8, "filters": ((1, 16), (3, 32)), "dropout": 0.0}
STEPS, RATE = 130, 1e-2


def learner(tokenizer: Tokenizer, **settings: Any) -> tuple[BiLM, Any]:
    softmax = settings.pop("softmax", "full")
    backbone = BiLM(BiLMConfig(len(tokenizer), **SMALL | settings))
    backbone.spell(tokenizer)
    vocab = Vocab(len(tokenizer), tokenizer.ids())
    return backbone, build({"bilm": BiLMObjectiveConfig(softmax=softmax)}, backbone, vocab)


def test_each_word_is_asked_for_from_both_sides() -> None:
    tokenizer = train_tokenizer(["the dog sees the cat"] * 3, "word", 280)
    _, objective = learner(tokenizer)
    known = {token: id for id, token in enumerate(tokenizer.tokens())}
    cls, sep, unk, pad = (tokenizer.id(role) for role in ("cls", "sep", "unk", "pad"))
    row = tokenizer.encode("the dogs sees", special=True).ids  # [CLS] the dog s sees [SEP]
    other = tokenizer.encode("dog", special=True).ids
    ids = torch.tensor([row, other + [pad] * (len(row) - len(other))])
    targets = objective.corrupt(Batch(ids, torch.tensor([len(row), len(other)]))).targets
    the, dog, sees, none = known["Ġthe"], known["Ġdog"], known["Ġsees"], IGNORE
    assert targets["forward"].labels.tolist() == [[the, unk, sees, none, sep, none], [dog, sep, none, none, none, none]]
    assert targets["backward"].labels.tolist() == [
        [none, cls, the, none, unk, sees],
        [none, cls, dog, none, none, none],
    ]
    assert targets["bilm"].labels is targets["forward"].labels


def test_tokens_are_words_where_a_table_is_read() -> None:
    tokenizer = train_tokenizer(["the dog sees the cat"] * 3, "bpe", 270)
    _, objective = learner(tokenizer, reads="tokens")
    ids = torch.tensor([tokenizer.encode("the dogs", special=True).ids])
    targets = objective.corrupt(Batch(ids, torch.tensor([ids.shape[1]]))).targets
    assert targets["forward"].labels.tolist() == [[*ids[0, 1:].tolist(), IGNORE]]
    assert targets["backward"].labels.tolist() == [[IGNORE, *ids[0, :-1].tolist()]]


@pytest.mark.parametrize("seed", range(2))
def test_the_loss_is_that_of_the_softmax_of_each_half(seed: int) -> None:
    torch.manual_seed(seed)
    chain = Chain(12, seed)
    tokenizer = word_tokenizer(chain.words)
    backbone, objective = learner(tokenizer)
    batch = objective.corrupt(batch_of(chain, tokenizer, 6, seed))
    training, looking = objective.train()(backbone, batch), objective.eval()(backbone, batch)
    assert [term.name for term in training] == ["forward", "backward"]
    head, last = objective.heads()["bilm"], backbone(batch).last
    assert isinstance(head, FullSoftmax)
    assert head.table is not None
    for term, seen, states in zip(training, looking, last.chunk(2, -1), strict=True):
        logits = (states @ head.table.t())[..., : len(tokenizer)] + head.bias
        wanted = F.cross_entropy(
            logits.flatten(0, 1), batch.targets[term.name].labels.flatten(), reduction="sum", ignore_index=IGNORE
        )
        torch.testing.assert_close(term.total, wanted)
        torch.testing.assert_close(seen.total, wanted)
        assert seen.hits is not None
        assert term.weight == 0.5
        assert int(term.count) == int((batch.targets[term.name].labels != IGNORE).sum()) == 6 * 9


@pytest.mark.parametrize("vocab", [30, 500])
def test_an_adaptive_softmax_is_a_likelihood(vocab: int) -> None:
    torch.manual_seed(0)
    head = AdaptiveSoftmax(16, vocab)
    hidden, labels = torch.randn(40, 16), torch.randint(0, vocab, (40,))
    labels[::5] = IGNORE
    logs = head.groups.log_prob(hidden)
    torch.testing.assert_close(logs.exp().sum(1), torch.ones(40))
    total, hits = head.tell(hidden, labels, True)
    real = labels != IGNORE
    torch.testing.assert_close(total, -logs[real, labels[real]].sum())
    assert hits is not None
    assert int(hits) == int((logs.argmax(1) == labels)[real].sum())
    none, hits = head.tell(hidden, torch.full_like(labels, IGNORE), False)
    assert float(none) == 0.0
    assert hits is None
    assert set(SOFTMAXES) == {"bilm", "bilm_adaptive"}


def batch_of(chain: Chain, tokenizer: Tokenizer, rows: int, seed: int) -> Batch:
    texts = chain.text(rows, 1, 8, seed).strip().split("\n\n")
    ids = torch.tensor([tokenizer.encode(text, special=True).ids for text in texts])
    return Batch(ids, torch.full((rows,), ids.shape[1]), full=True)


def entropies(chain: Chain) -> tuple[float, float]:
    """Of the next word, and of the one before: a chain read backward is a chain too."""
    back = chain.step.T * chain.start / chain.start[:, None]

    def mean(step: Any) -> float:
        logs = np.log(np.where(step > 0, step, 1.0))
        return float(-(chain.start[:, None] * step * logs).sum())

    return mean(chain.step), mean(back)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "reads"), [(0, "characters"), (1, "tokens")])
def test_it_learns_a_chain_to_its_entropy(seed: int, reads: str) -> None:
    torch.manual_seed(seed)
    chain = Chain(10, seed)
    tokenizer = word_tokenizer(chain.words)
    backbone, objective = learner(tokenizer, reads=reads, depth=1)
    parameters = [*backbone.parameters(), *objective.parameters()]
    optimizer = torch.optim.AdamW(parameters, RATE, weight_decay=0.0)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / 10, 2 * (STEPS - step) / STEPS)
        terms = objective(backbone, objective.corrupt(batch_of(chain, tokenizer, 64, seed * 1000 + step)))
        optimizer.zero_grad()
        torch.stack([term.weight * term.total / term.count for term in terms]).sum().backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    objective.eval()
    batch = objective.corrupt(batch_of(chain, tokenizer, 512, 99_999 + seed))
    for name, middle in (("forward", slice(1, -2)), ("backward", slice(2, -1))):  # marks and first words aside
        labels = torch.full_like(batch.ids, IGNORE)
        labels[:, middle] = batch.targets[name].labels[:, middle]
        batch.targets[name] = type(batch.targets[name])(labels)
    with torch.no_grad():
        found = objective(backbone, batch)
    for term, best in zip(found, entropies(chain), strict=True):
        loss = float(term.total / term.count)
        assert best - 0.05 < loss < best + 0.15, (term.name, loss, best)


def test_parts_of_a_batch_are_the_batch() -> None:
    """Sums and counts: the gradients of two halves, of different lengths, are those of the whole."""
    tokenizer = train_tokenizer(["the dog sees the cat and a bird"] * 3, "word", 285)
    torch.manual_seed(0)
    backbone, objective = learner(tokenizer)
    backbone.double(), objective.double()
    rows = [tokenizer.encode(line, special=True).ids for line in ("the doggy sees", "a cat", "the bird and a dog")]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])

    def gradients(parts: list[slice]) -> list[torch.Tensor]:
        backbone.zero_grad()
        for part in parts:
            batch = objective.corrupt(Batch(ids[part], lengths[part]))
            torch.stack([term.total for term in objective(backbone, batch)]).sum().backward()
        return [p.grad.clone() for p in backbone.parameters() if p.grad is not None]

    for x, y in zip(gradients([slice(0, 3)]), gradients([slice(0, 1), slice(1, 3)]), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)


def test_another_backbone_is_refused() -> None:
    encoder = Encoder(EncoderConfig(vocab=20, width=8, depth=1, heads=1))
    with pytest.raises(SesameError, match=r'backbone.kind = "bilm"'):
        build({"bilm": BiLMObjectiveConfig()}, encoder, Vocab(20, {"unk": 1}))
