"""Logging of programs: one line an event on stderr, for people or, with CAIRN_LOG=json, for machines."""

from __future__ import annotations

import logging
import os
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger


def configure() -> None:
    """Set structlog up, unless the program that uses us has done so."""
    if structlog.is_configured():
        return
    machine = os.environ.get("CAIRN_LOG") == "json"
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso" if machine else "%H:%M:%S"),
            *(_for_machines() if machine else _for_people()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=_to_stderr,
    )


def _for_machines() -> list[Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _for_people() -> list[Processor]:
    plain = structlog.dev.plain_traceback  # the fancy one shows local variables
    return [
        _printable,
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain),
    ]


def _to_stderr(*_: object) -> structlog.WriteLogger:
    """To what is stderr at this moment: a live view puts itself in between."""
    return structlog.WriteLogger(sys.stderr)


def printable(text: str) -> str:
    """`text` without what could steer a terminal or turn its words around: names and reasons come from strangers."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _printable(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return {key: printable(value) if isinstance(value, str) else value for key, value in event.items()}
