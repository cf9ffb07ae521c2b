"""The interruption queue of the sandbox, as nobody but its owner sees it."""

from tests.support.product.product import Product


def queued(product: Product) -> int:
    """Messages in the queue: also those that were received and are not deleted yet."""
    return product.aws.queued()


async def nothing_is_queued(product: Product) -> None:
    assert queued(product) == 0
