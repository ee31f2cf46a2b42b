"""Whether an output layer has weights of its own: told by the file, where config.json is silent, as in transformers 5."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.data.batch import Batch
from sesame.objectives import MaskedLMHead
from sesame.objectives.decoder_head import DecoderHead
from sesame.objectives.plm import TableHead
from tests.checkpoint.test_bert_parity import noisy

BERT = {"vocab_size": 97, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40}
ESM = {"position_embedding_type": "rotary", "token_dropout": False, "emb_layer_norm_before": False, "mask_token_id": 4}
TOKENS = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
NARROW = {**BERT, "embedding_size": 10}
DISTIL = {"vocab_size": 97, "dim": 24, "n_layers": 1, "n_heads": 4}
XLNET = {"vocab_size": 97, "d_model": 24, "n_layer": 1, "n_head": 4, "d_inner": 40}
OLD = {"vocab_size": 97, "n_embd": 24, "n_layer": 1, "n_head": 4}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {  # the type, its class, its settings
    "bert": ("BertForMaskedLM", "cls.predictions.decoder.weight", BERT),
    "roberta": ("RobertaForMaskedLM", "lm_head.decoder.weight", {**BERT, "type_vocab_size": 1}),
    "albert": ("AlbertForMaskedLM", "predictions.decoder.weight", NARROW),
    "electra": ("ElectraForMaskedLM", "generator_lm_head.weight", NARROW),
    "distilbert": ("DistilBertForMaskedLM", "vocab_projector.weight", DISTIL),
    "ernie": ("ErnieForMaskedLM", "cls.predictions.decoder.weight", BERT),
    "xlm": ("XLMWithLMHeadModel", "pred_layer.proj.weight", {"n_words": 97, "emb_dim": 24, "n_layers": 1, "n_heads": 4}),
    "xlnet": ("XLNetLMHeadModel", "lm_loss.weight", XLNET),
    "esm": ("EsmForMaskedLM", "lm_head.decoder.weight", {**BERT, **ESM, "pad_token_id": 0}),
    "modernbert": ("ModernBertForMaskedLM", "decoder.weight", {**BERT, **TOKENS}),
    "gpt2": ("GPT2LMHeadModel", "lm_head.weight", {**OLD, "bos_token_id": None, "eos_token_id": None}),
    "openai-gpt": ("OpenAIGPTLMHeadModel", "lm_head.weight", OLD),
}  # fmt: skip
IDS = torch.arange(8, 19)[None]


@torch.no_grad()
def logits(parts: Parts) -> Tensor:
    (head,) = (head for name, head in parts.heads.items() if name in ("mlm", "plm", "lm"))
    assert isinstance(head, MaskedLMHead | TableHead | DecoderHead)
    last = parts.backbone.eval()(Batch(IDS, torch.tensor([IDS.shape[1]]))).last
    return head(last, parts.backbone.token_table())[..., :97]


@pytest.mark.parametrize("form", ["two tables", "the output alone"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_file_is_believed(family: str, form: str, tmp_path: Path) -> None:
    name, output, settings = FAMILIES[family]
    kind = getattr(transformers, name)
    config = transformers.AutoConfig.for_model(family, **settings, tie_word_embeddings=form != "two tables")
    folder = tmp_path / "theirs"
    noisy(kind(config)).save_pretrained(folder)
    if form == "two tables":  # and config.json says nothing of it
        said = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({k: v for k, v in said.items() if k != "tie_word_embeddings"}))
    else:  # as those write it who keep the first of two names that share their numbers
        found = load_file(folder / "model.safetensors")
        (tokens,) = (k for k, v in found.items() if v.dim() == 2 and len(v) == 97)
        found[output] = found.pop(tokens)
        save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
    tolerance = 1e-5 if family in ("xlm", "xlnet", "esm", "modernbert") else 1e-9  # they compute some of it in 32 bits
    with torch.no_grad():
        wanted = kind.from_pretrained(folder, dtype=torch.float64).double().eval()(IDS).logits
        parts = load_parts(folder)
        assert (logits(parts) - wanted).abs().max() < tolerance
        (tmp_path / "ours").mkdir()
        save_parts(tmp_path / "ours", parts)
        back = kind.from_pretrained(tmp_path / "ours", dtype=torch.float64).double().eval()
        assert (back(IDS).logits - wanted).abs().max() < tolerance
        assert (logits(load_parts(tmp_path / "ours")) - wanted).abs().max() < tolerance


def test_of_two_biases_that_of_the_decoder_is_used(tmp_path: Path) -> None:
    name, _, settings = FAMILIES["bert"]
    noisy(transformers.BertForMaskedLM(transformers.BertConfig(**settings))).save_pretrained(tmp_path)
    found = load_file(tmp_path / "model.safetensors")
    found["cls.predictions.decoder.bias"] = found["cls.predictions.bias"] + 1
    save_file(found, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with torch.no_grad():
        wanted = getattr(transformers, name).from_pretrained(tmp_path, dtype=torch.float64).eval()(IDS).logits
    assert (logits(load_parts(tmp_path)) - wanted).abs().max() < 1e-9
