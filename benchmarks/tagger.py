"""What do vectors add to a tagger? CoNLL-2003: a BiLSTM alone, with static vectors, with TagLM, with ELMo.

    python benchmarks/tagger.py OUT --data CONLL --vectors FILE --lm RUN [--trials bare,static] [--seeds 3] [--parallel 3]
    python benchmarks/tagger.py --table OUT

CONLL holds train.txt.gz, dev.txt.gz and test.txt.gz; FILE are static vectors (`sesame vectors`), RUN is a run of recipe
`elmo`, both learnt from text without labels. All taggers are the same BiLSTM on words and letters (`sesame tagger`), taught
by `sesame finetune --strategy tagger`, whose last step counts: dev is looked at, and chooses nothing. What a trial reached is
kept in OUT; `--table` writes it into benchmarks/README.md.
"""

import argparse
import json
from pathlib import Path

import report
from side_by_side import by_trial, chosen, keep, options, parted, sesame, side_by_side, spread

TRIALS = {
    "bare": "BiLSTM on words and letters",
    "static": "+ static vectors",
    "taglm": "+ static vectors + TagLM",
    "elmo": "+ static vectors + ELMo",
}
AT = {"taglm": "second", "elmo": "first"}  # the layer that reads the language model


def one(name: str, seed: int, given: argparse.Namespace) -> None:
    """Within a process of its own."""
    start, run = given.out / "starts" / f"{name}.{seed}", given.out / "runs" / f"{name}.{seed}"
    train, dev, test = (given.data / f"{part}.txt.gz" for part in ("train", "dev", "test"))
    more = [] if name == "bare" else ["--vectors", given.vectors]
    more += ["--lm", given.lm, "--at", AT[name]] if name in AT else []
    if not start.exists():
        sesame("tagger", "--train", train, *more, "--seed", seed, "--out", start)
    files = ["--train", train, "--valid", dev, "--test", test]
    how = ["--strategy", "tagger", "--seeds", 1, "--seed", seed, "--no-baselines", "--device", given.device]
    how += [word for setting in given.set for word in ("--set", setting)]
    sesame("finetune", start, "--task", "tag", *files, *how, "--out", run)
    scores = json.loads((run / "results.json").read_text())["scores"]
    found = {"scores": {part: 100 * scores[part]["f1"]["mean"] for part in ("valid", "test")}}
    keep(name, seed, given, found)
    print(f"{name} seed {seed}: F1 {found['scores']}", flush=True)


def table(out: Path) -> str:
    found = by_trial(out)
    rows = [
        [words, *(spread([line["scores"][part] for line in found[name]]) for part in ("valid", "test"))]
        for name, words in TRIALS.items()
        if name in found
    ]
    seeds, machine = max(map(len, found.values())), next(iter(found.values()))[0]["machine"]
    how = f"CoNLL-2003, F1 of entities, mean ± deviation of {seeds} seeds. {machine}"
    return f"{how}\n\n{report.table(['tagger', 'dev', 'test'], rows)}"


def main() -> None:
    parser = options("A tagger with and without vectors.", seeds=3, parallel=3)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--lm", type=Path)
    given = parser.parse_args()
    if given.table:
        report.put("tagger", table(given.table))
    elif given.out is None or given.data is None:
        parser.error("OUT and --data are needed")
    elif given.one:
        one(*parted(given.one), given)
    else:
        names = chosen(given.trials, TRIALS)
        if given.vectors is None and set(names) - {"bare"}:
            parser.error("--vectors is needed, for all but the trial bare")
        if given.lm is None and set(names) & set(AT):
            parser.error("--lm is needed for taglm and elmo")
        side_by_side(names, given)


if __name__ == "__main__":
    main()
