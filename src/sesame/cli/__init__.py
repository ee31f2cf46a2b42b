"""The door: one small file for each group of commands.

PyTorch is imported inside the commands only, so that `sesame --help` answers at once.
"""

import os
import signal
import sys

import typer

from sesame.cli import answers, evaluate, explain, models, pictures, prepare, runs, serve, speak, teach, train, vectors
from sesame.cli.help import name_values
from sesame.cli.show import complain
from sesame.errors import SesameError
from sesame.files import abandon, goes_on
from sesame.progress import speaks

# Threads of PyTorch that wait asleep, not spinning: beside other work on the machine a step is twice as fast.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

app = typer.Typer(
    name="sesame",
    help="Pre-train, transfer, explain and serve language models on your own text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for room in (prepare, vectors, train, teach, evaluate, runs, answers, speak, explain, pictures, serve, models):
    room.register(app)
name_values(app)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Say the version and stop.", is_eager=True)) -> None:
    if version:
        from sesame import __version__

        typer.echo(f"sesame {__version__}")
        raise typer.Exit


def main() -> None:
    """Run a command; a user's mistake ends with one sentence and exit code 2, never with a traceback."""
    if not speaks():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # of many processes the first one gives the answers
    before = {number: signal.signal(number, _leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        app()
    except SesameError as error:
        complain(str(error))
        sys.exit(_code(error))
    except OSError as error:
        if error.filename is None:
            raise
        complain(f"{error.filename}: {error.strerror}; check the file, its folder and their permissions")
        sys.exit(2)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: object) -> None:
    """Ctrl-C or SIGTERM outside of the training, which has its own way to stop: leave at once.

    Raising an exception here could be swallowed by whatever runs at the moment, or end in a traceback.
    """
    again = "; run the same command again to go on" if goes_on() else ""
    complain(f"stopped by {signal.Signals(number).name}{again}")
    abandon()
    os._exit(128 + number)


def _code(error: SesameError) -> int:
    return int(getattr(error, "exit_code", 2))
