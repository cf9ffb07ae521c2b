"""What a machine reads about itself at its boot: its user data and its hardware.

Questions are repeated until they are answered; each instance type is asked for once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError

from sandbox.nodes.machine_types import MachineType

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.5
_AT_A_TIME = 8
CONNECTION_ERRORS = (BotoCoreError, ClientError, aiohttp.ClientError, TimeoutError, OSError)
Answer = TypeVar("Answer")


class Facts:
    def __init__(
        self, user_data: Callable[[str], Awaitable[str]], machine_type: Callable[[str], Awaitable[MachineType]]
    ) -> None:
        self._ask_user_data, self._ask_type = user_data, machine_type
        self._types: dict[str, asyncio.Future[MachineType]] = {}
        self._room = asyncio.Semaphore(_AT_A_TIME)

    async def user_data(self, instance_id: str) -> str:
        return await self._until_answered(self._ask_user_data, instance_id)

    async def machine_type(self, name: str) -> MachineType:
        # A task of its own: the machine that asked first may end before the answer, the others still wait for it.
        if name not in self._types:
            self._types[name] = asyncio.ensure_future(self._until_answered(self._ask_type, name))
        return await asyncio.shield(self._types[name])

    async def _until_answered(self, ask: Callable[[str], Awaitable[Answer]], subject: str) -> Answer:
        while True:
            try:
                async with self._room:
                    return await ask(subject)
            except CONNECTION_ERRORS as error:
                _LOG.warning("asking about %s: %s", subject, error)
            await asyncio.sleep(_PAUSE_SECONDS)
