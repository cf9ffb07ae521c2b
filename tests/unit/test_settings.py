"""Settings: flags override the environment, which overrides defaults; an error is one line."""

from datetime import timedelta

import pytest

from tenure.settings import GATES, Settings, SettingsError, help_text, load


@pytest.fixture(autouse=True)
def clear_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)


def test_flags_override_environment_and_environment_overrides_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_NAME", "by-environment")
    monkeypatch.setenv("BATCH_MAX_DURATION", "1m30s")
    monkeypatch.setenv("DRAIN_TIMEOUT", "2h")
    settings = load(["--cluster-name=by-flag", "--batch-max-duration", "5s"])
    assert settings.cluster_name == "by-flag"
    assert settings.batch_max_duration == timedelta(seconds=5)
    assert settings.drain_timeout == timedelta(hours=2)
    assert settings.batch_idle_duration == timedelta(seconds=1)


def test_empty_value_is_a_value() -> None:
    settings = load(["--cluster-name", "demo", "--leader-election-name=", "--metrics-port", "0"])
    assert (settings.leader_election_name, settings.metrics_port) == ("", 0)


@pytest.mark.parametrize(
    "flags",
    [["--isolated-vpc"], ["--isolated-vpc=true"], ["--isolated-vpc", "true"], ["--isolated-vpc", "--temporal-tls"]],
)
def test_switch_needs_no_value(flags: list[str]) -> None:
    assert load([*flags, "--cluster-name", "demo"]).isolated_vpc is True


def test_unnamed_feature_gates_keep_their_default() -> None:
    gates = load(["--cluster-name=demo", "--feature-gates", "NodeRepair = true, ReservedCapacity=False"]).feature_gates
    assert gates == GATES | {"NodeRepair": True, "ReservedCapacity": False}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "CLUSTER_NAME is not set"),
        (["--cluster-name="], "CLUSTER_NAME=''"),
        (["--cluster-name=team/demo"], "CLUSTER_NAME='team/demo'"),
        (["--cluster-name"], "--cluster-name: no value"),
        (["--cluster-name", "--metrics-port"], "--cluster-name: no value"),
        (["--clustername=demo"], "'--clustername' is not known"),
        (["demo"], "'demo' is not known"),
        (["--feature-gates=NodeRepare=true"], "NodeRepare"),
        (["--feature-gates=NodeRepair"], "NodeRepair=true or NodeRepair=false"),
        (["--feature-gates=DRAEFA=false"], "gate 'DRAEFA': unknown"),
        (["--security-group-refresh-interval=59s"], "expected 1m or more"),
        (["--batch-max-duration=10"], "BATCH_MAX_DURATION='10'"),
        (["--batch-max-duration=0s"], "must be positive"),
        (["--launch-timeout=0s"], "LAUNCH_TIMEOUT='0s'"),
        (["--ami-refresh-interval=59s"], "expected 1m or more"),
        (["--subnet-refresh-interval=0s"], "expected 1m or more"),
        (["--drain-timeout=Never"], "DRAIN_TIMEOUT='Never'"),
        (["--batch-idle-duration=-1s"], "cannot be negative"),
        (["--metrics-port=70000"], "METRICS_PORT='70000'"),
        (["--metrics-port=seventy"], "METRICS_PORT='seventy'"),
        (["--isolated-vpc=perhaps"], "ISOLATED_VPC='perhaps'"),
        (["--temporal-ui-url=temporal.example.com"], "TEMPORAL_UI_URL='temporal.example.com'"),
        (
            ["--cluster-name=demo", "--cluster-endpoint=ABC.eks.amazonaws.com"],
            "CLUSTER_ENDPOINT='ABC.eks.amazonaws.com': expected an address with http:// or https://",
        ),
        (["--aws-endpoint-url=simulator:4566"], "AWS_ENDPOINT_URL='simulator:4566'"),
        (["--prometheus-url=prometheus.monitoring:9090"], "PROMETHEUS_URL='prometheus.monitoring:9090'"),
        (["--log-level=loud"], "'debug', 'info' or 'error'"),
        (["--scheduler-config=podTopologySpread: {}\nprofiles: []"], "'profiles': unknown field"),
        ([f"--scheduler-config={'[' * 9000}"], "invalid YAML"),
        ([f"--scheduler-config={' ' * 20_000}"], "20000 characters, expected at most 16384"),
    ],
)
def test_invalid_setting_is_one_line_that_names_it(flags: list[str], expected: str) -> None:
    named = [] if any("cluster" in flag for flag in flags) or not flags else ["--cluster-name=demo"]
    with pytest.raises(SettingsError) as error:
        load([*named, *flags])
    assert expected in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


def test_help_lists_every_setting_with_its_default() -> None:
    lines = {line.split()[0]: line for line in help_text().splitlines()}
    assert set(lines) == {f"--{name.replace('_', '-')}" for name in Settings.model_fields}
    assert lines["--drain-timeout"].split()[2] == "1h0m0s"
    assert lines["--isolated-vpc"].split()[2] == "false"
    assert lines["--cluster-name"].split()[2] == "required"
