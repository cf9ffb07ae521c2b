"""Encryption of what Temporal stores: any of the keys reads, the newest writes, and nothing stays readable."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent

from tenure.controller.temporal.connection import Security
from tenure.controller.temporal.encryption import EncryptionCodec
from tenure.controller.temporal.payload_codec import decrypt_all, read_keys
from tenure.model.errors import BadInput

OLD, NEW = bytes(range(32)), bytes(range(16, 32))
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"ip-10-0-0-1"')


def text_of(key: bytes) -> str:
    return base64.b64encode(key).decode()


async def test_the_newest_key_encrypts_and_every_key_decrypts() -> None:
    (before,) = await EncryptionCodec({"old": OLD}).encode([PLAIN])
    both = EncryptionCodec({"new": NEW, "old": OLD})
    (after,) = await both.encode([PLAIN])
    assert after.metadata["encryption-key-id"] == b"new" and b"ip-10" not in after.SerializeToString()
    assert await both.decode([before, after, PLAIN]) == [PLAIN, PLAIN, PLAIN]


async def test_equal_payloads_are_not_equal_when_encrypted() -> None:
    first, second = await EncryptionCodec({"one": OLD}).encode([PLAIN, PLAIN])
    assert first.data != second.data


def altered(payload: Payload) -> Payload:
    return Payload(metadata=dict(payload.metadata), data=payload.data[:-1] + bytes([payload.data[-1] ^ 1]))


@pytest.mark.parametrize(
    ("keys", "change", "message"),
    [
        ({"two": OLD}, lambda one: one, "encrypted by the key 'one', which TEMPORAL_PAYLOAD_KEYS_PATH lacks"),
        ({"one": NEW}, lambda one: one, "'one' is another key than the one that encrypted this"),
        ({"one": OLD}, altered, "'one' is another key"),
    ],
)
async def test_what_cannot_be_decrypted_says_by_which_key(
    keys: dict[str, bytes], change: Callable[[Payload], Payload], message: str
) -> None:
    (encrypted,) = await EncryptionCodec({"one": OLD}).encode([PLAIN])
    with pytest.raises(ValueError, match=message):
        await EncryptionCodec(keys).decode([change(encrypted)])


async def test_all_payloads_of_an_event_are_decrypted_wherever_they_stand() -> None:
    codec = EncryptionCodec({"one": OLD})
    (encrypted,) = await codec.encode([PLAIN])
    event = HistoryEvent()
    event.user_metadata.summary.CopyFrom(encrypted)
    started = event.workflow_execution_started_event_attributes
    started.input.payloads.append(encrypted)
    started.memo.fields["events"].CopyFrom(encrypted)
    started.search_attributes.indexed_fields["TenurePhase"].CopyFrom(PLAIN)
    decrypt_all(event, codec.decrypt)
    assert event.user_metadata.summary == started.input.payloads[0] == started.memo.fields["events"] == PLAIN
    assert started.search_attributes.indexed_fields["TenurePhase"] == PLAIN


def test_keys_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# rotated in May\nnew {text_of(NEW)}\n\nold {text_of(OLD)}\n")
    assert list(read_keys(str(file)).items()) == [("new", NEW), ("old", OLD)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no key; write lines of a name and a key"),
        ("one", "line 1, one: 0 bytes; AES takes 16, 24 or 32"),
        ("one not-base64!", "line 1, one: the key is no base64"),
        (f"one {text_of(b'short')}", "line 1, one: 5 bytes"),
        (f"one {text_of(OLD)}\none {text_of(NEW)}", "line 2: one is there twice"),
    ],
)
def test_a_file_that_is_none_of_keys_is_named_with_the_line_and_what_to_write(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(BadInput, match=message) as error:
        Security(payload_keys=str(file)).data_converter()
    assert "TEMPORAL_PAYLOAD_KEYS_PATH" in str(error.value) and "not-base64" not in str(error.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match="TEMPORAL_PAYLOAD_KEYS_PATH=/nowhere: No such file"):
        Security(payload_keys="/nowhere").data_converter()
