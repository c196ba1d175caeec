"""`cairn tiny`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from schemas.config import load

CACHE = Path("~/.cache/cairn/models")


@click.command("tiny")
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=None,
    help="Of weights and words.  [default: run.seed of CONFIG]",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    default=CACHE,
    show_default=True,
    help="Where models are kept.",
)
def command(config: Path, seed: int | None, cache: Path) -> None:
    """Make the tiny model that a reverse-text run starts from, and print its folder.

    It is warmed up on demonstrations of the run's training words, some of them with a mistake, so that it
    answers, but badly. The same settings give the same model; a second call only prints the folder.

    \b
    Example:
      cairn tiny configs/demo.toml --seed 3
    """
    resolved = load(config)
    from trainer.tiny import Tiny, make_tiny

    settings = Tiny(environment=resolved.environment, seed=resolved.run.seed if seed is None else seed)
    with _progress(Console(stderr=True)) as progress:
        folder = make_tiny(settings, cache.expanduser(), progress)
    click.echo(folder)


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[int, int, float], None]]:
    """A bar in a terminal, a line now and then elsewhere."""
    if not console.is_terminal:
        yield _line
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("warming the tiny model up", total=None)
        yield lambda done, total, loss: bar.update(task, completed=done, total=total)


def _line(done: int, total: int, loss: float) -> None:
    if done % max(1, total // 20) == 0:
        click.echo(f"warming up: step {done} of at most {total}, loss {loss:.2f}", err=True)
