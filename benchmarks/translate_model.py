"""A base-sized Marian-shaped model whose answers have real lengths, made on a CPU in minutes: what translate.py measures.

    python benchmarks/translate_model.py DATA OUT [--minutes 8] [--pieces 4000] [--inner 1024] [--threads N] [--device cpu]

DATA holds train.jsonl.gz with "en" and "de" in each row (Multi30k). One layer a side is trained; then it is put behind five
more that change next to nothing, in the shape of the published models (6 + 6 layers, 512 wide, 8 heads, 2,048 inside,
58,101 tokens), so that every product of such a model is computed. Rows of the table that no piece uses have a bias of -30.
Why five layers before can change nothing: LN(LN(x)) = LN(x), so a layer whose parts answer (almost) 0 is its norms alone,
and what the first of them does, the trained layer saw in training (`embedding_norm`).
"""

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from sesame.backbones import EncoderDecoder, EncoderDecoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.speech import Speech
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.files import whole_folder
from sesame.nn.block import Block, CrossBlock
from sesame.objectives.decoder_head import DecoderHead
from sesame.objectives.seq2seq import Seq2Seq
from sesame.text import Tokenizer
from sesame.text.train import train_tokenizer

VOCAB, WIDTH, DEPTH, INNER = 58101, 512, 6, 2048
BATCH, RATE, WARM, SMALL, UNUSED = 64, 1e-3, 200, 1e-3, -30.0


def pairs(data: Path) -> list[tuple[str, str]]:
    with gzip.open(data / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [(row["en"], row["de"]) for row in rows]


def batches(rows: list[tuple[list[int], list[int]]], generator: torch.Generator) -> Iterator[Batch]:
    """Without end: pairs of about one length together, in an order by chance."""
    while True:
        order = torch.randperm(len(rows), generator=generator).tolist()
        order.sort(key=lambda row: len(rows[row][1]))
        starts = torch.randperm(len(order) // BATCH, generator=generator).tolist()
        for start in starts:
            yield batch([rows[row] for row in order[start * BATCH : (start + 1) * BATCH]])


def batch(rows: list[tuple[list[int], list[int]]]) -> Batch:
    ids, labels = (
        nn.utils.rnn.pad_sequence([torch.tensor(row[side]) for row in rows], True, fill)
        for side, fill in ((0, 0), (1, IGNORE))
    )
    lengths = torch.tensor([len(row[0]) for row in rows])
    return Batch(ids, lengths).with_targets(seq2seq=Targets(labels))


def train(tokenizer: Tokenizer, rows: list[tuple[str, str]], inner: int, seconds: float, device: str) -> EncoderDecoder:
    config = EncoderDecoderConfig(len(tokenizer), WIDTH, 1, 8, inner=inner, dropout=0.0, attention_dropout=0.0,
                                  embedding_norm=True, max_length=512)  # fmt: skip
    torch.manual_seed(0)
    model = EncoderDecoder(config).train().to(device)
    start = tokenizer.id("pad")
    objective = Seq2Seq("seq2seq", DecoderHead(WIDTH, len(tokenizer)), start, start, 0.1).train().to(device)
    ids = [[encoding.ids for encoding in tokenizer.encode_batch([row[side] for row in rows])] for side in (0, 1)]
    end = tokenizer.id("sep")
    given = batches([([*a, end], [*b, end]) for a, b in zip(*ids, strict=True)], torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(model.parameters(), RATE, (0.9, 0.98), 1e-9)
    begun, step = time.monotonic(), 0
    while (gone := (time.monotonic() - begun) / seconds) < 1:
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(step / WARM, 1.0) * min(1.0, 1.25 * (1 - gone) + 0.02)
        (term,) = objective.terms(model(exercise := objective.corrupt(next(given).to(torch.device(device)))), model)
        loss = term.total / term.count
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"{gone:.0%} of the time, step {step}, loss {loss.item():.3f}, {exercise.size} pairs", flush=True)
    return model.eval().cpu()


@torch.no_grad()
def grown(small: EncoderDecoder) -> EncoderDecoder:
    config = EncoderDecoderConfig(VOCAB, WIDTH, DEPTH, 8, inner=INNER, max_length=512)
    large = EncoderDecoder(config).eval()
    large.tokens.weight[: small.vocab] = small.tokens.weight[: small.vocab]
    for mine, theirs in ((large.encoder, small.encoder), (large.decoder, small.decoder)):
        for block in mine.blocks:
            assert isinstance(block, Block)
            parts = [block.attention.out, block.feedforward.down]
            for linear in [*parts, block.cross.out] if isinstance(block, CrossBlock) else parts:
                linear.weight *= SMALL
        copy(theirs.norm, mine.blocks[-2].feedforward_norm)
        copy(theirs.blocks[-1], mine.blocks[-1])
    return large


def copy(source: nn.Module, target: nn.Module) -> None:
    """Weights into the first places; what is wider there stays 0."""
    wanted = dict(target.named_parameters())
    for name, tensor in source.named_parameters():
        place: Tensor = wanted[name].zero_()
        place[tuple(slice(0, size) for size in tensor.shape)] = tensor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--pieces", type=int, default=4000)
    parser.add_argument("--inner", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu")
    wishes = parser.parse_args()
    torch.set_num_threads(wishes.threads)
    rows = pairs(wishes.data)
    tokenizer = train_tokenizer([text for row in rows for text in row], "bpe", wishes.pieces, template="end")
    model = grown(train(tokenizer, rows, wishes.inner, wishes.minutes * 60, wishes.device))
    pad, end = tokenizer.id("pad"), tokenizer.id("sep")
    head = DecoderHead(WIDTH, VOCAB, bias="fixed")
    head.bias[len(tokenizer) :] = UNUSED
    speech = Speech(start=(pad,), end=(end,), pad=pad, banned=((pad,),))
    with whole_folder(wishes.out) as folder:
        save_parts(folder, Parts(model, {"seq2seq": head}, tokenizer, speech=speech))
    print(f"{wishes.out}: {sum(p.numel() for p in model.parameters()):,} parameters")


if __name__ == "__main__":
    main()
