"""Hostile values by family. `fields.yaml` assigns families to fields."""

from typing import Any, Final

ARABIC_THREE: Final = "\u0663"
LONG: Final = "x" * 200_000
"""Near the limit of 256 KiB for annotations."""


def _nest(depth: int) -> Any:
    nested: Any = "x"
    for _ in range(depth):
        nested = {"a": [nested]}
    return nested


TEXTS: Final[dict[str, Any]] = {
    "empty": "",
    "long": LONG,
    "digits": "9" * 4301 + "h",
    "open-braces": "{" * 5_000 + "[" * 5_000,
    "other-script": f"{ARABIC_THREE}h \u202e\u0928\u094b\u0921 \U0001f980",
    "control-characters": "a\x00\x01\x1b[2J\r\nb\x7f",
    "lone-surrogate": "a\ud800b",
    "number": 10**18,
    "null": None,
    "nested": _nest(200),
    "thousands": [str(number) for number in range(5_000)],
    "yaml-aliases": "a: &a [x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n" * 50,
    "template": "%s%n{{ .Values }}${IFS}$(id)`id`",
    "spaces": " \t\n" * 5_000,
}
DURATIONS: Final[dict[str, Any]] = {
    "digits": "9" * 4301 + "h",
    "sixty-digits": "9" * 60 + "h",
    "many-units": "1h" * 31,
    "no-unit": "9" * 20_000 + "x",
    "other-script": f"{ARABIC_THREE}h",
    "negative": "-1h",
    "exponent": "1e999999999h",
    "empty": "",
    "number": 2**63,
    "largest": f"{2**63 // 3_600_000_000_000}h",
    "zero": "0s",
    "control-characters": "1h\x00",
}
QUANTITIES: Final[dict[str, Any]] = {
    "huge": "9e30",
    "over-64-bits": str(2**63),
    "largest": "8Ei",
    "negative": "-1",
    "tiny": "1n",
    "digits": "9" * 4301,
    "exponent": "1e9999",
    "other-script": f"{ARABIC_THREE}Gi",
    "empty": "",
    "number": 10**30,
    "fraction": "0." + "0" * 3_000 + "1",
    "nan": "NaN",
}
NUMBERS: Final[dict[str, Any]] = {
    "largest-32-bits": 2**31 - 1,
    "largest-64-bits": 2**63 - 1,
    "over-64-bits": 2**64,
    "negative": -1,
    "smallest": -(2**63),
    "zero": 0,
    "fraction": 0.1,
    "text": "1" * 5_000,
    "list": [1],
}
SHARES: Final[dict[str, Any]] = {
    "digits": "9" * 4301,
    "twenty-digits": "9" * 20,
    "share": "100%",
    "other-script": f"{ARABIC_THREE}%",
    "negative": "-1",
    "zero": "0",
    "number": 2**31 - 1,
    "over-64-bits": 2**64,
    "two-signs": "1%%",
}
CRON_LINES: Final[dict[str, Any]] = {
    "unknown-macro": "@dailyx",
    "never": "0 0 31 2 *",
    "other-script": f"{ARABIC_THREE} 0 * * *",
    "step-zero": "*/0 * * * *",
    "digits": "9" * 80 + " 0 * * *",
    "last-day": "0 0 L * *",
    "long-list": ",".join(str(number % 60) for number in range(5_000)) + " * * * *",
    "time-zone": "TZ=../../etc/passwd 0 0 * * *",
}
MAPS: Final[dict[str, Any]] = {
    "thousands": {f"example.com/k{number}": "v" for number in range(5_000)},
    "long-key": {"k" * 100_000: "v"},
    "long-value": {"example.com/k": "v" * 100_000},
    "empty-key": {"": ""},
    "reserved": {"karpenter.sh/nodepool": "none", "kubernetes.io/hostname": "\u0663", "tenure.sh/paused": "\x00"},
    "numbers": {"example.com/k": 1},
    "lone-surrogate": {"example.com/k": "\ud800"},
    "nested": {"example.com/k": _nest(50)},
    "list": ["example.com/k"],
}
REQUIREMENTS: Final[dict[str, Any]] = {
    "thousands-of-values": [
        {"key": "example.com/k", "operator": "In", "values": [f"v{number}" for number in range(5_000)]}
    ],
    "thousands": [{"key": f"example.com/k{number}", "operator": "Exists"} for number in range(2_000)],
    "huge-number": [{"key": "example.com/k", "operator": "Gt", "values": ["9" * 4_301]}],
    "over-64-bits": [{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": [str(2**64)]}],
    "other-script": [{"key": "example.com/k", "operator": "Lt", "values": [ARABIC_THREE]}],
    "no-values": [{"key": "example.com/k", "operator": "In", "values": []}],
    "unknown-operator": [{"key": "example.com/k", "operator": "Near", "values": ["a"]}],
    "contradiction": [{"key": "example.com/k", "operator": one, "values": ["a"]} for one in ("In", "NotIn")],
    "lone-surrogate": [{"key": "example.com/k", "operator": "In", "values": ["\ud800"]}],
    "empty-value": [{"key": "example.com/k", "operator": "In", "values": [""]}],
    "map": {"key": "example.com/k"},
}
USER_DATA: Final[dict[str, Any]] = {
    "flow-depth": "[" * 3_000,
    "yaml-types": "kind: NodeConfig\nspec: {a: !!bool x, b: !!timestamp x, c: 0x_}\n",
    "toml-depth": "a = " + "[" * 3_000,
    "toml-key": ".".join("a" * 5_000) + " = 1\n",
    "mime": "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\n\n--\n" * 100,
    "control-characters": "\x00\x01\x1b",
    "lone-surrogate": "#!/bin/bash\necho \ud800\n",
    "long": "#" * 500_000,
    "number": 7,
    "other-script": "\u202e\U0001f980" * 500,
}
FAMILIES: Final = {
    "text": TEXTS,
    "duration": DURATIONS,
    "quantity": QUANTITIES,
    "number": NUMBERS,
    "share": SHARES,
    "cron": CRON_LINES,
    "map": MAPS,
    "requirements": REQUIREMENTS,
    "userdata": USER_DATA,
}
