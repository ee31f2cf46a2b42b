"""The doctor: what is wrong with a text and a tokenizer, before an hour is spent."""

import json as jsonlib
from dataclasses import asdict

from rich.console import Console

from sesame.data.corpus_files import corpus_files, corpus_size
from sesame.doctor.findings import text_findings, tokenizer_findings
from sesame.doctor.report import Report
from sesame.doctor.text import check_text
from sesame.doctor.tokenizer import check_tokenizer
from sesame.progress import bar
from sesame.text import Tokenizer


def run_doctor(text: list[str], tokenizer: str | None, field: str, json: bool) -> int:
    """Examine, print, and give the exit code: 1 if something would hurt."""
    files = corpus_files(text)
    loaded = Tokenizer.load(tokenizer) if tokenizer is not None else None
    with bar("reading", corpus_size(files), "B") as shown:
        checked = check_text(files, field, shown.advance)
    examined = check_tokenizer(loaded, checked) if loaded is not None else None
    examples = []
    if loaded is not None:
        from sesame.doctor.masked import masked_examples  # only this part needs PyTorch

        examples = masked_examples(loaded, checked)
    findings = [*text_findings(checked.figures), *(tokenizer_findings(examined) if examined else [])]
    findings.sort(key=lambda finding: finding.level != "hurts")
    if json:
        report = {
            "findings": [asdict(finding) for finding in findings],
            "text": asdict(checked.figures),
            "tokenizer": asdict(examined) if examined else None,
            "masked_examples": [[asdict(token) for token in row] for row in examples],
        }
        print(jsonlib.dumps(report, ensure_ascii=False))
    else:
        Report(Console(highlight=False, emoji=False, soft_wrap=True)).all(findings, checked.figures, examined, examples)
    return int(any(finding.level == "hurts" for finding in findings))
