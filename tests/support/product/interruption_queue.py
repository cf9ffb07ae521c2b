"""The sandbox's interruption queue from outside."""

from tests.support.product.product import InstalledProduct


def queued_message_count(product: InstalledProduct) -> int:
    """Number of messages, including received ones that are not deleted yet."""
    return product.aws.count_queued_messages()


async def assert_queue_empty(product: InstalledProduct) -> None:
    assert queued_message_count(product) == 0
