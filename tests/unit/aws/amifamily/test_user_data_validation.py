"""User data in a format that the image family does not read is reported with its field before a launch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.aws.amifamily.families import FAMILIES
from tenure.aws.amifamily.user_data.config import LIMIT, UserDataTooLarge
from tenure.aws.amifamily.user_data.validation import why_near_limit, why_settings_dropped, why_unreadable
from tests.unit.aws.amifamily.user_data_builders import rendered

SHELL = "#!/bin/bash\necho hello\n"
MIME = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="BOUNDARY"

--BOUNDARY
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
echo hello

--BOUNDARY--
"""
NODE_CONFIG = """apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      maxPods: 42
"""
MIME_CONFIG = MIME.replace('text/x-shellscript; charset="us-ascii"', "application/node.eks.aws").replace(
    "#!/bin/bash\necho hello\n", NODE_CONFIG
)
TOML = '[settings.kubernetes]\nkube-api-qps = 30\n[settings.ntp]\ntime-servers = ["a"]\n'
POWERSHELL = "<powershell>\nWrite-Host hello\n</powershell>\n"
CLOUD_CONFIG = "#cloud-config\nruncmd: [ls]\n"


@pytest.mark.parametrize(
    ("family", "text"),
    [
        *((family, text) for family in FAMILIES for text in ("", " \n")),
        *(("Custom", text) for text in (SHELL, TOML, POWERSHELL, "anything: [at all")),
        *(("AL2", text) for text in (SHELL, MIME, "\n" + SHELL, MIME.replace("\n", "\r\n"))),
        *(("AL2023", text) for text in (SHELL, MIME, NODE_CONFIG, MIME_CONFIG, "# mine\n" + NODE_CONFIG)),
        ("AL2023", MIME_CONFIG.replace("--BOUNDARY--", "--BOUNDARY")),
        ("AL2023", "#!/bin/bash\ncat > f <<E\n" + NODE_CONFIG + "E\n"),
        ("Bottlerocket", TOML),
        ("Bottlerocket", "# nothing but a remark\n"),
        *((f"Windows{year}", text) for year in (2019, 2022, 2025) for text in (POWERSHELL, "Write-Host hello\n")),
    ],
)
def test_supported_user_data_is_valid(family: str, text: str) -> None:
    assert why_unreadable(text, FAMILIES[family]) == ""


@pytest.mark.parametrize(
    ("family", "text", "fragments"),
    [
        ("Bottlerocket", SHELL, ("TOML", "line 2")),
        ("Bottlerocket", "[settings\nkubernetes = 1\n", ("TOML", "line 1")),
        ("Bottlerocket", TOML + "kube-api-qps = \n", ("TOML", "line 5")),
        ("Bottlerocket", MIME, ("TOML", "line 1")),
        ("Bottlerocket", "settings = 5\n", ("settings must be a table",)),
        ("Bottlerocket", "[settings]\nkubernetes = 5\n", ("settings.kubernetes must be a table",)),
        ("AL2023", TOML, ("TOML settings for Bottlerocket", "AL2023 requires")),
        ("AL2", TOML, ("TOML settings for Bottlerocket", "AL2 requires")),
        ("AL2", POWERSHELL, ("a PowerShell block for Windows",)),
        ("AL2023", POWERSHELL, ("a PowerShell block for Windows",)),
        ("AL2023", CLOUD_CONFIG, ("cloud-config outside of a MIME part",)),
        ("AL2", NODE_CONFIG, ("NodeConfig is only supported by AL2023",)),
        ("AL2", MIME_CONFIG, ("MIME part 1", "only supported by AL2023")),
        ("AL2023", NODE_CONFIG.replace("maxPods: 42", "maxPods: [42"), ("invalid YAML", "line ")),
        ("AL2023", NODE_CONFIG.replace("kind: NodeConfig", "kind: Node"), ("kind NodeConfig",)),
        ("AL2023", MIME_CONFIG.replace("maxPods: 42", "maxPods: [42"), ("MIME part 1", "invalid YAML", "line ")),
        ("AL2023", MIME_CONFIG.replace("kind: NodeConfig", "kind: Node"), ("MIME part 1", "kind NodeConfig")),
        ("AL2023", MIME.replace("--BOUNDARY--", ""), ("MIME", "boundary")),
        ("AL2", MIME.replace("--BOUNDARY\n", "--OTHER\n"), ("MIME", "boundary")),
        ("AL2", "MIME-Version: 1.0\nContent-Type: multipart/mixed\n\nhello\n", ("MIME", "boundary")),
        ("AL2023", "Content-Type: text/plain\n\nhello\n", ("MIME", "boundary")),
        ("Windows2022", SHELL, ("#! line", "PowerShell")),
        ("Windows2022", MIME, ("MIME", "PowerShell")),
        ("Windows2019", TOML, ("TOML settings for Bottlerocket", "PowerShell")),
        ("Windows2025", "<powershell>\nWrite-Host hello\n", ("1 <powershell>", "0 </powershell>")),
        ("Windows2025", POWERSHELL + POWERSHELL, ("2 <powershell>",)),
    ],
)
def test_unsupported_user_data_is_reported_with_its_field(family: str, text: str, fragments: tuple[str, ...]) -> None:
    problem = why_unreadable(text, FAMILIES[family])
    assert problem.startswith("spec.userData: ")
    assert all(fragment in problem for fragment in fragments), problem


@pytest.mark.parametrize(
    ("size", "near"), [(0, False), (LIMIT * 9 // 10, False), (LIMIT * 9 // 10 + 1, True), (LIMIT, True)]
)
def test_user_data_near_limit_is_warned(size: int, near: bool) -> None:
    warning = why_near_limit(size)
    assert bool(warning) == near
    assert not near or (str(size) in warning and str(LIMIT) in warning)


HOSTILE_CONFIG = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: "
HOSTILE = (
    "{note: 2026-13-45}",
    "{a: !!bool x}",
    "{a: !!timestamp x}",
    "{a: 0x_}",
    "[" * 5_000,
    "{a: " * 3_000,
    "a\n" * 20_000,
    "&a [*a, *a]",
    "\ud800",
    "\x00",
    "? [a]",
)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: value[:20].encode("unicode_escape").decode())
def test_any_text_is_valid_or_reported_in_one_line(family: str, value: str) -> None:
    for text in (HOSTILE_CONFIG + value, value, MIME_CONFIG.replace("maxPods: 42", value), f"a = {value}"):
        problem = why_unreadable(text, FAMILIES[family])
        assert not problem or (problem.startswith("spec.userData: ") and "\n" not in problem), problem


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "text",
    (
        "MIME-Version: 1.0\nContent-Type: multipart/mixed" + "; a=b" * 200_000,
        "".join(f"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(15_000)),
    ),
    ids=("parameters", "nested-parts"),
)
def test_user_data_over_the_limit_is_rejected_without_parsing(family: str, text: str) -> None:
    """The parser of MIME takes quadratic time for parameters, and a RecursionError ends it for nested parts."""
    assert why_unreadable(text, FAMILIES[family]).startswith(
        f"spec.userData: {len(text)} bytes, expected at most 16384"
    )
    with pytest.raises(UserDataTooLarge, match=r"spec\.userData"):
        rendered(family, userData=text)


@pytest.mark.parametrize(
    "value", ("{note: 2026-13-45}", "{a: !!bool x}", "{a: !!timestamp x}", "{a: 0x_}", "[" * 5_000)
)
def test_invalid_yaml_values_are_rejected(value: str) -> None:
    assert "invalid YAML" in why_unreadable(HOSTILE_CONFIG + value, FAMILIES["AL2023"])


@given(st.text(alphabet=st.characters(codec=None)))
def test_any_text_raises_no_exception(text: str) -> None:
    for family in FAMILIES.values():
        why_unreadable(text, family)
        why_unreadable(HOSTILE_CONFIG + text, family)


@pytest.mark.parametrize(
    ("family", "text", "dropped"),
    [
        ("Bottlerocket", "[settings.kubernetes]\nlabels = {}\nmistake = 1\nmax-pods = 5\n", "labels, mistake"),
        ("Bottlerocket", '[settings.kubernetes]\nauthentication-mode = "aws"\nhostname-override = "a"\n', ""),
        ("Bottlerocket", "", ""),
        ("AL2023", "#!/bin/bash\n", ""),
    ],
)
def test_dropped_bottlerocket_settings_are_named(family: str, text: str, dropped: str) -> None:
    found = why_settings_dropped(text, FAMILIES[family])
    assert found.startswith(f"spec.userData: settings.kubernetes: {dropped}: ") if dropped else not found
