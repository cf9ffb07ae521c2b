"""The interruption queue of the sandbox, as nobody but its owner sees it."""

from tests.integration.product import Product


def queued(product: Product) -> int:
    """Messages in the queue: also those that were received and are not deleted yet."""
    sqs = product.admin("sqs")
    url = sqs.get_queue_url(QueueName="demo")["QueueUrl"]
    wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=wanted)["Attributes"]
    return sum(int(one) for one in found.values())


async def nothing_is_queued(product: Product) -> None:
    assert queued(product) == 0
