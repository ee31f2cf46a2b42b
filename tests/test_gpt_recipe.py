"""`sesame pretrain gpt` and `gpt2`: transformers opens what they write and says the same; they learn a known language."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from benchmarks.kill_resume import make_text, weights

import sesame
from sesame.backbones import Encoder, EncoderConfig
from sesame.checkpoint.loading import load_parts
from sesame.data.batch import Batch
from sesame.data.build import build_store
from sesame.data.pack import Packer, Specials
from sesame.data.parts import hold_out
from sesame.errors import SesameError
from sesame.evaluate.perplexity import Reading, perplexity
from sesame.objectives import Vocab, build
from sesame.objectives.clm import CausalLMConfig
from sesame.objectives.decoder_head import DecoderHead
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import resolve
from tests.crashes import crash_while_saving
from tests.languages import Chain, word_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
SETTINGS = (
    "backbone.width=32", "backbone.depth=2", "backbone.heads=2", "backbone.max_length=32", "backbone.dropout=0.0",
    "stages.main.length=32", "stages.main.batch=8", "tokenizer.size=300", "optimizer.rate=1e-3",
)  # fmt: skip


def run(recipe: str, text: Path, out: Path, **more: Any) -> Path:
    wanted: dict[str, Any] = {"settings": SETTINGS, "steps": 6, "save_steps": 3, "device": "cpu"} | more
    return pretrain(Wishes(recipe, [str(text)], out, **wanted))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each recipe on the same text."""
    folder = tmp_path_factory.mktemp("gpt")
    text = make_text(folder / "text.txt", 40)
    return {"text": text} | {recipe: run(recipe, text, folder / recipe) for recipe in ("gpt", "gpt2")}


@pytest.mark.parametrize(("recipe", "family"), [("gpt", "openai-gpt"), ("gpt2", "gpt2")])
def test_transformers_says_the_same(trained: dict[str, Path], recipe: str, family: str) -> None:
    """Equal logits, and greedily the same tokens, for prompts of several lengths."""
    final = trained[recipe]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(final).eval()
    reader = transformers.AutoTokenizer.from_pretrained(final)
    assert theirs.config.model_type == family
    model = sesame.load(final, "cpu")
    assert set(model.parts.heads) == {"lm"}
    assert model.parts.unused == []
    head = model.parts.heads["lm"]
    for prompt in ("the", trained["text"].read_text(encoding="utf-8")[:12], "One more."):
        ids = torch.tensor([model.tokenizer.encode(prompt).ids])
        assert reader(prompt, add_special_tokens=False).input_ids == ids[0].tolist()
        with torch.no_grad():
            wanted = theirs(ids).logits
            hidden = model.parts.backbone(Batch(ids, torch.tensor([ids.shape[1]]), full=True)).last
            found = head(hidden, model.parts.backbone.token_table())[..., : model.parts.backbone.vocab]
            said = theirs.generate(ids, max_new_tokens=8, do_sample=False, attention_mask=torch.ones_like(ids))
        assert torch.allclose(found, wanted, atol=1e-5)
        [[answer]] = model.generate(prompt, most=8)
        assert answer.ids == [id for id in said[0, ids.shape[1] :].tolist() if id != model.tokenizer.id("sep")]


@pytest.mark.slow
def test_a_run_goes_on_after_a_crash_and_from_a_model(trained: dict[str, Path], tmp_path: Path) -> None:
    text = trained["text"]
    with crash_while_saving(after=1):
        run("gpt", text, tmp_path / "broken")
    run("gpt", text, tmp_path / "broken")
    assert weights(tmp_path / "broken") == weights(trained["gpt"].parent)
    further = load_parts(run("gpt", text, tmp_path / "further", start=str(trained["gpt"]), steps=2))
    assert set(further.heads) == {"lm"}
    assert further.family == "openai-gpt"
    extended = load_parts(run("gpt2", text, tmp_path / "more", start=str(trained["gpt2"]), steps=2, extend=5))
    assert isinstance(extended.heads["lm"], DecoderHead)
    assert extended.heads["lm"].vocab == extended.backbone.vocab


def test_the_start_models_head_is_kept(trained: dict[str, Path], tmp_path: Path) -> None:
    """A GPT that goes on by another left-to-right recipe keeps its one head: two would soon disagree."""
    settings = ("stages.short.length=32", "stages.long.length=32", "stages.short.batch=4", "stages.long.batch=4")
    other = run("bert-ltr", trained["text"], tmp_path / "ltr", start=str(trained["gpt2"]), steps=2, settings=settings)
    assert set(load_parts(other).heads) == {"lm"}


def test_a_model_without_room_or_without_masks_says_so(trained: dict[str, Path]) -> None:
    model = sesame.load(trained["gpt"], "cpu")
    with pytest.raises(SesameError, match=r"prompt 1: has \d+ tokens and the model takes 32; shorten it"):
        model.generate("word " * 200)
    with pytest.raises(SesameError, match="reads from left to right"):
        model.fill("a [MASK]")
    with pytest.raises(SesameError, match="cannot translate; it continues texts, use `sesame generate`"):
        model.translate("a")


def test_a_head_is_chosen_plainly() -> None:
    with pytest.raises(SesameError, match="leave plain out"):
        CausalLMConfig(head="lm", plain=True)
    narrow = Encoder(EncoderConfig(50, 16, 1, 2, causal=True, embedding_width=8))
    with pytest.raises(SesameError, match="as wide as the states"):
        build({"clm": CausalLMConfig(head="lm")}, narrow, Vocab(50, ROLES))


def test_the_recipes_are_the_papers() -> None:
    first, second = resolve("gpt", size="base"), resolve("gpt2", size="base")
    assert (first.backbone["depth"], first.backbone["width"], first.stages["main"].batch) == (12, 768, 64)
    assert (second.stages["main"].length, second.stages["main"].batch, second.tokenizer.size) == (1024, 512, 50_257)
    for recipe in ("gpt", "gpt2"):
        for size in ("tiny", "mini", "small", "medium", "base", "large"):
            for device in ("cpu", "cuda"):
                found = resolve(recipe, size=size, budget=True, device=device)
                assert found.stages["main"].length == found.backbone["max_length"]  # no place is left untrained


def test_a_block_is_merely_cut(tmp_path: Path) -> None:
    """Rows of a stream without a separator at their ends: put together they are the text, separators between documents."""
    chain = Chain(20, 3)
    tokenizer = word_tokenizer(chain.words)
    (tmp_path / "text.txt").write_text(chain.text(9, 2, 7, 0), encoding="utf-8")
    store = build_store([tmp_path / "text.txt"], tokenizer, tmp_path)
    packer = Packer(hold_out(store, 0, 0.0)[0], "blocks", 8, Specials(None, 3, 0, end=False))
    for fixed in (False, True):
        packer.fixed = fixed
        batch = packer.draw(np.arange(len(packer)), np.zeros(len(packer), dtype=np.uint64))
        assert batch.full
        assert batch.ids.shape == (len(packer), 8)
        stream = batch.ids[:-1].flatten().tolist()
        documents = np.split(np.asarray(store.tokens), 9)
        wanted = [id for document in documents for id in [*document.tolist(), 3]][:-1]
        assert stream == wanted[: len(stream)]
        assert batch.ids[-1].tolist() == wanted[-8:]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "seed"), [("gpt", 0), ("gpt", 1), ("gpt2", 0), ("gpt2", 1)])
def test_a_chain_is_learnt_near_its_entropy(recipe: str, seed: int, tmp_path: Path) -> None:
    """H = - sum of start_i step_ij log step_ij per word; what is drawn from the model follows the chain."""
    chain = Chain(30, seed)
    (tmp_path / "text.txt").write_text(chain.text(300, 1, 200, seed), encoding="utf-8")
    steps = np.where(chain.step > 0, chain.step, 1.0)
    entropy = float(-(chain.start @ (chain.step * np.log(steps)).sum(1)))
    settings = (
        "backbone.max_length=64", "stages.main.length=64", "stages.main.batch=16", "tokenizer.size=400",
        "backbone.dropout=0.0", "backbone.attention_dropout=0.0", "optimizer.rate=2e-3", "schedule.warmup=0.1",
    )  # fmt: skip
    final = pretrain(
        Wishes(recipe, [str(tmp_path / "text.txt")], tmp_path / "run", size="tiny", steps=200, seed=seed,
               settings=settings, device="cpu")
    )  # fmt: skip
    parts = load_parts(final)
    held = chain.text(10, 1, 100, 99).strip().split("\n\n")
    found = perplexity(parts, held, Reading(length=63, stride=16, joined=False))
    first = -np.log(chain.start).mean() / 100  # each text's first word follows nothing
    assert entropy - 0.05 < found.nats / found.pieces < entropy + first + 0.1
    model, follows, words = sesame.load(final, "cpu"), 0, 0
    for [answer] in model.generate([chain.words[n] for n in range(10)], most=40, sample=True, seed=seed):
        said = [chain.words.index(word) for word in answer.text.split() if word in chain.words]
        follows += sum(chain.step[a, b] > 0 for a, b in pairwise(said))
        words += max(0, len(said) - 1)
    assert follows / words > 0.9


@pytest.mark.slow
def test_it_learns_to_write_what_stands_between_sentences(tmp_path: Path) -> None:
    """Line ends and spaces come back; in several languages too."""
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(["One. Two.\nThree."] * 60) + "\n", encoding="utf-8")
    more: dict[str, Any] = {"steps": 60, "save_steps": 0, "settings": (*SETTINGS, "optimizer.rate=5e-3")}
    for number, name in enumerate((str(text), f"en={text}")):
        final = pretrain(Wishes("gpt2", [name], tmp_path / str(number), device="cpu", **more))
        [[said]] = sesame.load(final, "cpu").generate("One.", most=12)
        assert said.text == " Two.\nThree."
        assert said.ended
