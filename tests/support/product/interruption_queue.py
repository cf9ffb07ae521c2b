"""The interruption queue of the sandbox, as nobody but its owner sees it."""

from tests.support.product.product import InstalledProduct


def queued_message_count(product: InstalledProduct) -> int:
    """Messages in the queue: also those that were received and are not deleted yet."""
    return product.aws.count_queued_messages()


async def assert_queue_empty(product: InstalledProduct) -> None:
    assert queued_message_count(product) == 0
