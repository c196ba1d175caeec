"""Logging of programs: one line an event on stderr, for people or, with CAIRN_LOG=json, for machines."""

from __future__ import annotations

import logging
import os
import sys

import structlog


def configure() -> None:
    """Set structlog up, unless the program that uses us has done so."""
    if structlog.is_configured():
        return
    machine = os.environ.get("CAIRN_LOG") == "json"
    renderer = (
        structlog.processors.JSONRenderer()
        if machine
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso" if machine else "%H:%M:%S"),
            *([structlog.processors.format_exc_info] if machine else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
