"""A model that got new words: old answers stay, new rows are means, the folder opens everywhere."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sesame.backbones import Encoder, EncoderConfig
from sesame.backbones.grow import grow, grow_head
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.objectives import MaskedLMHead
from sesame.text import train_tokenizer
from sesame.text.extend import extend_tokenizer

WIDTH = 16
PIECES = [[5, 6, 7], [8], [1, 90, 3]]


def noisy(module: nn.Module) -> Any:
    """Zeros and ones at the start would hide a row that was not copied."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    return module.double().eval()


def encoder(vocab: int, **changes: Any) -> Encoder:
    made: Encoder = noisy(Encoder(EncoderConfig(vocab, WIDTH, 2, 2, max_length=32, **changes)))
    return made


def head(vocab: int, tied: bool = True, narrow: int = WIDTH) -> MaskedLMHead:
    made: MaskedLMHead = noisy(MaskedLMHead(WIDTH, narrow, vocab, "gelu", 1e-12, tied))
    return made


@torch.no_grad()
def logits(backbone: Encoder, mlm: MaskedLMHead, ids: Tensor) -> Tensor:
    batch = Batch(ids, torch.full((ids.shape[0],), ids.shape[1]))
    answer: Tensor = mlm(backbone(batch).last, backbone.token_table())
    return answer


@pytest.mark.parametrize("vocab", [97, 125, 126, 128])  # the padded table of 128 rows stays, is filled, grows
@pytest.mark.parametrize("tied", [True, False])
def test_old_logits_stay_and_new_rows_are_means(vocab: int, tied: bool) -> None:
    old, old_head = encoder(vocab), head(vocab, tied)
    new, new_head = grow(old, PIECES), grow_head(old_head, PIECES)
    assert (new.vocab, new.config.vocab, new_head.vocab) == (vocab + 3,) * 3
    ids = torch.arange(vocab)[None, :24].repeat(2, 1).flip(1)
    before, after = logits(old, old_head, ids), logits(new, new_head, ids)
    # A table of another size may take another matrix kernel: equal to the last bits, not in them.
    torch.testing.assert_close(after[..., :vocab], before[..., :vocab], rtol=0, atol=1e-12)
    assert torch.isfinite(after[..., : vocab + 3]).all()
    assert torch.isinf(after[..., vocab + 3 :]).all()
    for id, pieces in enumerate(PIECES, vocab):
        # The output is linear in row and bias, so the logit of a mean is the mean of the logits.
        torch.testing.assert_close(after[..., id], before[..., pieces].mean(-1))
        torch.testing.assert_close(new.token_table()[id], old.token_table()[pieces].mean(0))


def test_the_old_model_is_left_alone() -> None:
    old, old_head = encoder(97), head(97, tied=False)
    kept = [p.clone() for p in (*old.parameters(), *old_head.parameters())]
    new, new_head = grow(old, PIECES), grow_head(old_head, PIECES)
    with torch.no_grad():
        for parameter in (*new.parameters(), *new_head.parameters()):
            parameter.zero_()
    assert all(torch.equal(a, b) for a, b in zip(kept, (*old.parameters(), *old_head.parameters()), strict=True))
    assert (old.vocab, old.config.vocab, old_head.vocab) == (97, 97, 97)


@pytest.mark.parametrize("changes", [{"share": "all"}, {"embedding_width": 8}, {"positions": "rotary", "order": "pre"}])
def test_other_encoders_grow_too(changes: dict[str, Any], tmp_path: Path) -> None:
    narrow = changes.get("embedding_width", WIDTH)
    old, old_head = encoder(97, **changes), head(97, narrow=narrow)
    new, new_head = grow(old, PIECES), grow_head(old_head, PIECES)
    assert len(list(new.parameters())) == len(list(old.parameters()))  # shared layers stay shared
    ids = torch.tensor([[2, 9, 98, 3]])
    save_parts(tmp_path, Parts(new, {"mlm": new_head}))
    again = load_parts(tmp_path)
    mlm = again.heads["mlm"]
    assert isinstance(mlm, MaskedLMHead)
    torch.testing.assert_close(logits(again.backbone.eval(), mlm, ids), logits(new, new_head, ids))


def test_spare_rows_are_used_first() -> None:
    old, old_head = encoder(100), head(100, tied=False)
    new, new_head = grow(old, PIECES, first=95), grow_head(old_head, PIECES, first=95)
    assert (new.vocab, new_head.vocab) == (100, 100)
    torch.testing.assert_close(new.token_table()[95], old.token_table()[[5, 6, 7]].mean(0))
    torch.testing.assert_close(new_head.bias[97], old_head.bias[[1, 90, 3]].mean())
    assert torch.equal(new.token_table()[98:100], old.token_table()[98:100])
    assert grow(old, PIECES, first=99).vocab == 102


def test_nothing_new_is_a_copy() -> None:
    old = encoder(97)
    new = grow(old, [])
    assert new.config == old.config
    assert torch.equal(new.token_table()[:97], old.token_table()[:97])


@pytest.mark.parametrize(("pieces", "first"), [([[97]], None), ([[96]], 96), ([[3]], 98), ([[]], None), ([[-1]], None)])
def test_pieces_of_another_tokenizer_are_an_error(pieces: list[list[int]], first: int | None) -> None:
    with pytest.raises(SesameError, match="do not fit a model of 97 tokens"):
        grow(encoder(97), pieces, first=first)
    with pytest.raises(SesameError, match="do not fit a model of 97 tokens"):
        grow_head(head(97), pieces, first=first)


def test_new_rows_learn() -> None:
    new, new_head = grow(encoder(97), PIECES), grow_head(head(97), PIECES)
    batch = Batch(torch.tensor([[2, 97, 5, 3]]), torch.tensor([4]))
    answer = new_head(new(batch).last, new.token_table())
    loss = nn.functional.cross_entropy(answer[0], torch.tensor([2, 98, 5, 3]))
    rows, bias = torch.autograd.grad(loss, [new.token_table(), new_head.bias])
    assert rows[97].abs().sum() > 0
    assert bias[98] != 0


@pytest.mark.parametrize("tied", [True, False])
def test_the_folder_opens_here_and_in_transformers(tied: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    lines = ["the cat sat on the mat " + " ".join(c * 2 for c in "abcdefghijklmnopqrstuvwxyz")] * 20
    old = train_tokenizer(lines, "wordpiece", 120)
    tokenizer, pieces = extend_tokenizer(old, ["myeloma", "nephrotic"])
    backbone, mlm = encoder(len(old)), head(len(old), tied)
    parts = Parts(grow(backbone, pieces), {"mlm": grow_head(mlm, pieces)}, tokenizer)
    save_parts(tmp_path, parts)

    ids = torch.tensor([tokenizer.encode("the myeloma sat [MASK] nephrotic", special=True).ids])
    assert {len(old), len(old) + 1} <= set(ids[0].tolist())
    again = load_parts(tmp_path)
    assert again.tokenizer is not None
    assert again.tokenizer.fingerprint() == tokenizer.fingerprint()
    assert set(again.heads) == {"mlm"}
    found = again.heads["mlm"]
    assert isinstance(found, MaskedLMHead)
    wanted = logits(parts.backbone, parts.heads["mlm"], ids)  # type: ignore[arg-type]
    assert torch.equal(logits(again.backbone.eval(), found, ids), wanted)

    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert auto("the myeloma sat [MASK] nephrotic")["input_ids"] == ids[0].tolist()
    assert theirs.config.vocab_size == len(tokenizer)
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, wanted[..., : len(tokenizer)], rtol=0, atol=1e-9)
