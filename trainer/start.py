"""Puts a run's trainer together: create or resume the run, restore its state, then train."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

import environments
import policy
from bus import Bus, Component, Writer
from bus.tasks import beside
from environments import Prompts
from schemas import Control, DeadLetter, Rollouts, Verdict, WorkRequested, WorkReturned
from schemas.config import Config, ConfigError
from schemas.event import Event
from trainer import checkpoint
from trainer.curriculum import Curriculum
from trainer.dispatch import STANDINGS, Dispatch
from trainer.learner import Learner
from trainer.progress import Progress
from trainer.publication import Publication
from trainer.recovery import began_with, restore_groups, train_again
from trainer.run import create_or_resume
from trainer.secret import Secret
from trainer.train import Trainer

log = structlog.get_logger()

FOLLOWED: dict[str, tuple[type[Event], ...]] = {
    "REQUESTS": (WorkRequested, WorkReturned),
    "ROLLOUTS": (Rollouts,),
    "VERDICTS": (Verdict,),
    "STANDINGS": STANDINGS,
    "CONTROL": (Control,),
    "DEAD": (DeadLetter,),
}
"""Streams that other nodes write, and what the trainer reads of them while it runs."""


async def serve(config: Config, directory: Path, keys: Path | None) -> None:
    """Run the trainer of `config` until the run has ended.

    directory: state that outlives the process (secret, checkpoints). Raises ConfigError, BusError.
    """
    secret = Secret.load_or_create(Path(config.run.secret) if config.run.secret else directory / "secret")
    environment = environments.load(config.environment.name, config.environment.arguments)
    indices, _ = environments.split(environment, config.environment.held_out, config.run.seed)
    template = await asyncio.to_thread(policy.folder, config.policy.model)
    prompts = Prompts(environment, policy.tokenizer(template))
    component = Component(kind="trainer", name="trainer", url=config.bus.url, run=config.run.name, keys=keys)
    async with Bus.connect(
        config.bus.url, config.run.name, component.identity, "trainer", patience=component.patience
    ) as bus:
        if not await create_or_resume(bus, config, secret):
            return

    @component.task
    async def train(component: Component) -> None:
        component.doing("restoring")
        learner = Learner(await asyncio.to_thread(policy.load, template, "float32"), config)
        writer = await Writer.open(component.bus)
        run_id = (await component.bus.wait_for_run()).event.id
        saved = await asyncio.to_thread(checkpoint.load, directory / "checkpoints")
        if saved is not None and saved.fold["run"] != run_id:
            raise ConfigError(
                f"{directory / 'checkpoints'} is of another run of this name; move it away or choose another run.name"
            )
        groups = await restore_groups(component.bus, saved.fold["groups"] if saved else None)
        progress = Progress(lineage=0, step=0, version=0, digest=policy.digest(learner.publishable()))
        if saved is not None:
            learner.restore(saved.learner)
            progress = Progress(**saved.fold["progress"])
        else:
            await began_with(component.bus, progress.digest)
        publication = Publication(config, writer, component.identity, directory / "outgoing", template)
        restored = await train_again(component.bus, writer, learner, publication, progress)
        curriculum = Curriculum(indices, config.run.seed)
        dispatch = Dispatch(config, component.bus, writer, groups, curriculum, prompts, secret)
        trainer = Trainer(
            config,
            component,
            writer,
            dispatch,
            learner,
            publication,
            restored,
            directory / "checkpoints",
            run_id,
        )
        if restored.lineage > progress.lineage:
            await dispatch.close_all("a new lineage began")
            await trainer.save()  # the next start must not compare with the line that was left
        following = (_follow(component.bus, trainer, stream) for stream in FOLLOWED)
        await beside(trainer.run(secret), writer.watch(), *following)

    await component.serve()


async def _follow(bus: Bus, trainer: Trainer, stream: str) -> None:
    kinds = FOLLOWED[stream]
    async for record in bus.records(*kinds, after=trainer.groups.folded.get(stream, 0)):
        trainer.observe(record)
