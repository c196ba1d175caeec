from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import io, sys
import structlog
from bus import logs

logs.configure()
log = structlog.get_logger()
log.warning("slashed", worker="\\x1b[2Jcheat\\nhonest", reason="because")
try:
    secret = "do not show"
    raise KeyError("x")
except KeyError:
    log.exception("failed")
sys.stderr = io.StringIO()
log.info("through another stderr")
print(sys.stderr.getvalue().count("through another stderr"))
"""


def logged(environment: dict[str, str]) -> tuple[str, str]:
    """What the program prints on stdout and on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


def test_people_get_a_line_that_cannot_steer_their_terminal() -> None:
    output, errors = logged({"CAIRN_LOG": ""})
    first, second, *rest = errors.splitlines()
    assert "worker=\N{REPLACEMENT CHARACTER}[2Jcheat\N{REPLACEMENT CHARACTER}honest" in first
    assert "because" in first
    assert "failed" in second
    assert "\x1b" not in errors
    assert rest[-1] == "KeyError: 'x'"
    assert "do not show" not in "".join(line for line in rest if "secret =" not in line)
    assert output == "1\n", "a log line goes to what is stderr at its time"


def test_machines_get_json() -> None:
    _, errors = logged({"CAIRN_LOG": "json"})
    first, second = map(json.loads, errors.splitlines())
    assert (first["event"], first["level"]) == ("slashed", "warning")
    assert first["worker"] == "\x1b[2Jcheat\nhonest"
    assert "KeyError" in second["exception"]


@pytest.mark.parametrize("configured", [True, False])
def test_a_program_that_has_set_structlog_up_keeps_its_way(configured: bool) -> None:
    program = "import structlog\nfrom bus import logs\n"
    program += "structlog.configure(processors=[])\n" if configured else ""
    program += "logs.configure()\nprint(len(structlog.get_config()['processors']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout == "0\n") == configured
