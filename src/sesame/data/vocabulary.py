"""From corpus files to a tokenizer, with a bar."""

from pathlib import Path

from sesame.data.corpus_files import corpus_size
from sesame.data.readers import read_documents
from sesame.progress import bar, say
from sesame.text import Tokenizer
from sesame.text.template import Template
from sesame.text.train import Kind, train_tokenizer


def tokenizer_from(
    files: list[Path],
    field: str,
    kind: Kind,
    size: int,
    lowercase: bool,
    strip_accents: bool,
    template: Template = "bert",
) -> Tokenizer:
    """Train a tokenizer on files."""
    with bar("tokenizer", corpus_size(files), "B") as shown:
        texts = (document.text for document in read_documents(files, field, shown.advance))
        made = train_tokenizer(texts, kind, size, lowercase=lowercase, strip_accents=strip_accents, template=template)
    if len(made) < size:
        say(f"the text gives only {len(made):,} pieces of the {size:,} wanted")
    return made
