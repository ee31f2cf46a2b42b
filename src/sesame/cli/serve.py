"""The command that answers over HTTP: `serve`."""

from pathlib import Path

import typer

from sesame.cli.answers import ACCEPT, DEVICE, ENGINE, PRECISION


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    models: list[str] = typer.Argument(None, help="Model folders or runs, or NAME=FOLDER."),
    runs: Path | None = typer.Option(None, help="A folder whose runs are shown, with their learning curves."),
    host: str = typer.Option("127.0.0.1", help="Where to listen; 0.0.0.0 lets other machines in."),
    port: int = typer.Option(8000, min=0, max=65535, help="0: any that is free."),
    api_key: str | None = typer.Option(
        None, envvar="SESAME_API_KEY", show_envvar=True, help="Asked of every client: Authorization: Bearer KEY."
    ),
    cors: list[str] = typer.Option(None, help="Another site whose pages may ask, such as https://example.org."),
    device: str = DEVICE,
    engine: str = ENGINE,
    precision: str = PRECISION,
    accept: bool = ACCEPT,
    threads: int | None = typer.Option(None, min=1, help="Cores for each batch; by default all, shared by the models."),
    queue: int = typer.Option(256, min=1, help="Requests that may wait for each model; more get 429."),
    batch: int = typer.Option(4096, min=1, help="Tokens that are computed together."),
    deadline: float = typer.Option(4.0, min=0.0, help="Milliseconds that a request waits for others."),
    timeout: float = typer.Option(30.0, min=0.01, help="Seconds until a request is given up (504)."),
    max_body: int = typer.Option(2_000_000, min=1, help="Bytes of a request at most."),
    max_texts: int = typer.Option(256, min=1, help="Texts of a request at most."),
    max_characters: int = typer.Option(100_000, min=1, help="Characters of a text at most."),
) -> None:
    """Answer programs over HTTP, and people in a browser.

    Example: sesame serve runs/topics names=runs/names --runs runs --port 8000
    """
    from sesame.errors import SesameError

    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise SesameError(
            "serving needs a few packages more; install them with: pip install 'sesame-nlp[serve]'"
        ) from None
    import torch

    from sesame.progress import say
    from sesame.serve.app import make_app
    from sesame.serve.limits import Limits
    from sesame.serve.models import open_models
    from sesame.serve.run import serve as run
    from sesame.serve.runs import Watch

    if not models and runs is None:
        raise SesameError("there is nothing to serve; name a model folder, or the folder of your runs with --runs DIR")
    if api_key is not None and not api_key.strip():
        raise SesameError("--api-key is empty; give a key, or leave the option out")
    torch.set_num_threads(threads or max(1, torch.get_num_threads() // max(1, len(models or ()))))
    limits = Limits(
        body=max_body, characters=max_characters, texts=max_texts, queue=queue, batch=batch,
        deadline=deadline / 1000, timeout=timeout,
    )  # fmt: skip
    watch = None if runs is None else Watch(runs)
    served = open_models(models, device, engine, precision, accept) if models else {}
    for model in served.values():
        say(f"{model.name}: {', '.join(model.can)}")
    run(make_app(served, limits, key=api_key, cors=cors or (), runs=watch), host, port)
