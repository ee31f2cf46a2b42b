"""What `--help` calls the values of options: short words, so that their explanation has room on a narrow screen.

Typer's own are <int range>, <list[str]> and <bool>, which in 80 columns leave 18 for the sentence beside them.
"""

import inspect
from pathlib import Path
from typing import Any, get_args

import typer
from typer.models import OptionInfo

WORDS: dict[Any, str] = {bool: "", int: "N", float: "X", Path: "PATH"}  # a switch takes nothing


def name_values(app: typer.Typer) -> None:
    """Every option of every command that says nothing itself."""
    for group in app.registered_groups:
        if group.typer_instance is not None:
            name_values(group.typer_instance)
    for command in app.registered_commands:
        assert command.callback is not None
        for parameter in inspect.signature(command.callback).parameters.values():
            option = parameter.default
            if isinstance(option, OptionInfo) and option.metavar is None:
                kinds = get_args(parameter.annotation) or (parameter.annotation,)  # of `int | None`: int
                option.metavar = WORDS.get(kinds[0], "TEXT")
