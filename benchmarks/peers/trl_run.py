"""TRL's GRPOTrainer on the task of a configuration, on CPU; run in the virtual environment that has TRL.

Under torchrun its processes share the batch (data parallel). Settings that a CPU wants and TRL does not default to: float32, no
gradient checkpointing, no logging and no files. The loss is TRL's own form of the configured one: two-sided clip,
token-level normalisation, advantages scaled by the group's standard deviation, no KL term and so no reference model.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import torch
import transformers
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from peers.trial import HeldOutTask, Trial, arguments, configuration
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from schemas.config import Config

ENDLESS = 1_000_000
"""Steps; the trial ends the training by its clock."""


class Watch(TrainerCallback):
    """Evaluates between steps and ends the training when the bar is met or the time is up."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trial.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
        self.trial.step_done(model)
        ends = [self.trial.seconds_to_bar is not None or self.trial.out_of_time]
        control.should_training_stop = broadcast_object_list(ends)[0]  # all processes end at the same step


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--processes", type=int, default=1, help="of torchrun, which share the micro-batch")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument(
        "--micro", type=int, default=512, help="rollouts in one forward pass of all processes"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    config = configuration(options)
    task = HeldOutTask(config)
    trial = Trial(task, options)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(config.policy.model, dtype=torch.float32),
            processing_class=task.tokenizer,
            reward_funcs=lambda completions, index, **_: list(map(task.reward, index, completions)),
            train_dataset=Dataset.from_list([{"prompt": task.prompt(i), "index": i} for i in task.train]),
            args=settings(config, options, folder),
            callbacks=[Watch(trial)],
        )
        trainer.train()
    if trainer.is_world_process_zero():
        print(trial.report())


def settings(config: Config, options: argparse.Namespace, folder: str) -> GRPOConfig:
    return GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=config.run.seed,
        max_steps=ENDLESS,
        per_device_train_batch_size=options.micro // options.processes,
        gradient_accumulation_steps=config.batch.groups * config.batch.group_size // options.micro,
        num_generations=config.batch.group_size,
        max_completion_length=config.sampling.max_new_tokens,
        temperature=config.sampling.temperature,
        loss_type="dapo",
        scale_rewards="group",
        beta=config.loss.kl,
        epsilon=config.loss.epsilon,
        delta=config.loss.delta,
        optim="adamw_torch_fused",
        learning_rate=config.optimizer.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=config.optimizer.warmup_steps,
        adam_beta1=config.optimizer.betas[0],
        adam_beta2=config.optimizer.betas[1],
        weight_decay=config.optimizer.weight_decay,
        max_grad_norm=config.optimizer.max_grad_norm,
    )


if __name__ == "__main__":
    main()
