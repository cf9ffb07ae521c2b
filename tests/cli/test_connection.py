"""The options of the way to Temporal are the same on every command that asks it, and so is `--output`."""

from typing import Any

import pytest
from _pytest.capture import CaptureFixture
from typer.main import get_command

from cli.main import VERBS, app, main

ASKING = ("approve", "events", "get", "give-up", "pause", "plan", "reject", "resume", "stuck", "why")


def options(verb: str) -> dict[str, Any]:
    group: Any = get_command(app)
    command = group.get_command(None, verb)
    return {name: one for one in command.params for name in one.opts}


@pytest.mark.parametrize("verb", ASKING)
def test_a_command_that_asks_temporal_takes_every_way_to_it(verb: str) -> None:
    found = options(verb)
    assert found["--temporal-api-key"].envvar == "TEMPORAL_API_KEY"
    assert found["--temporal-cert"].envvar == "TEMPORAL_TLS_CLIENT_CERT_PATH"
    assert {"--temporal-address", "--temporal-tls", "--temporal-ca", "--temporal-key", "--cluster-name"} <= set(found)


@pytest.mark.parametrize("verb", [*ASKING, "doctor", "simulate", "startups"])
def test_whatever_prints_something_prints_json_too(verb: str) -> None:
    assert {"--output", "-o"} <= set(options(verb))


def test_another_form_of_output_is_refused_by_one_line(capsys: CaptureFixture[str]) -> None:
    assert main(["stuck", "-o", "yaml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--output" in line and "'table', 'json'" in line


def test_half_of_mtls_is_refused_before_anyone_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", "/some/cert.pem")
    assert main(["get", "--cluster-name", "demo"]) == 2
    assert "TEMPORAL_TLS_CLIENT_KEY_PATH" in capsys.readouterr().err


def test_completion_is_the_program_s_and_not_a_command_s() -> None:
    assert "--install-completion" in {name for one in get_command(app).params for name in one.opts}
    assert not [verb for verb, one in VERBS.items() if one.is_installed() and "--install-completion" in options(verb)]
