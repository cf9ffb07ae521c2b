"""Our canonical text of a quantity is the text that the API server stores for a Node."""

import random

from tenure.apis.quantity import Quantity, parse
from tests.adapters.apis.server import ApiServerClient

SUFFIXES = ("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "e0", "e3", "E-4", "e-9")
HAND_PICKED = (
    *("0", "+7", "1.", ".5", "1024", "1000000Ki", "0.5Ki", "1.1Ki", "1023.9Ki", "123456789.123456789123Mi"),
    *("8Ei", "9Ei", "100E", "1e18", "1.0000000001", "0.0000000001", "99999999999999999999", "12345678901234567890n"),
)


def random_quantities(count: int) -> list[str]:
    """The same texts in each run."""
    dice = random.Random(1)
    texts = list(HAND_PICKED)
    while len(texts) < count:
        integer_part = str(dice.randrange(10 ** dice.randrange(1, 12)))
        fraction = f".{dice.randrange(10 ** dice.randrange(1, 11))}" if dice.random() < 0.4 else ""
        texts.append(integer_part + fraction + dice.choice(SUFFIXES))
    return texts


async def test_canonical_text_matches_api_server(server: ApiServerClient) -> None:
    expected = random_quantities(600)
    resources = ("cpu", "memory", "ephemeral-storage")
    normalized: dict[str, str] = {}
    for start in range(0, len(expected), len(resources)):
        capacity = dict(zip(resources, expected[start:], strict=False))
        normalized |= {capacity[name]: text for name, text in (await server.stored_node_capacity(capacity)).items()}
    # The server returns some short texts with a fraction and a suffix (1.5k) unchanged; it rewrites the others.
    rewritten = {text: normalized[text] for text in expected if normalized[text] != text}
    assert len(rewritten) > 200
    assert {text: as_stored(parse(text)) for text in rewritten} == rewritten
    assert [text for text in expected if parse(text).millis() != parse(normalized[text]).millis()] == []


def as_stored(quantity: Quantity) -> str:
    """The API server rounds a Node's quantities up to thousandths before it stores them."""
    return str(Quantity(quantity.millis() * 10**6, quantity.format))
