"""Payload encryption: the newest key encrypts, every key decrypts, and no payload stays readable."""

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


def encode_key(key: bytes) -> str:
    return base64.b64encode(key).decode()


async def test_newest_key_encrypts_and_every_key_decrypts() -> None:
    (before,) = await EncryptionCodec({"old": OLD}).encode([PLAIN])
    both = EncryptionCodec({"new": NEW, "old": OLD})
    (after,) = await both.encode([PLAIN])
    assert after.metadata["encryption-key-id"] == b"new" and b"ip-10" not in after.SerializeToString()
    assert await both.decode([before, after, PLAIN]) == [PLAIN, PLAIN, PLAIN]


async def test_equal_payloads_differ_when_encrypted() -> None:
    first, second = await EncryptionCodec({"one": OLD}).encode([PLAIN, PLAIN])
    assert first.data != second.data


def alter(payload: Payload) -> Payload:
    return Payload(metadata=dict(payload.metadata), data=payload.data[:-1] + bytes([payload.data[-1] ^ 1]))


@pytest.mark.parametrize(
    ("keys", "change", "message"),
    [
        ({"two": OLD}, lambda one: one, "encrypted by the key 'one', which TEMPORAL_PAYLOAD_KEYS_PATH lacks"),
        ({"one": NEW}, lambda one: one, "'one' is not the key that encrypted this"),
        ({"one": OLD}, alter, "'one' is not the key"),
    ],
)
async def test_decryption_error_names_the_key(
    keys: dict[str, bytes], change: Callable[[Payload], Payload], message: str
) -> None:
    (encrypted,) = await EncryptionCodec({"one": OLD}).encode([PLAIN])
    with pytest.raises(BadInput, match=message):
        await EncryptionCodec(keys).decode([change(encrypted)])


async def test_all_payloads_of_a_history_event_are_decrypted() -> None:
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


def test_keys_are_read_in_file_order(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# rotated in May\nnew {encode_key(NEW)}\n\nold {encode_key(OLD)}\n")
    assert list(read_keys(str(file)).items()) == [("new", NEW), ("old", OLD)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no key; write lines of a name and a key"),
        ("one", "line 1, one: 0 bytes; AES takes 16, 24 or 32"),
        ("one not-base64!", "line 1, one: the key is not base64"),
        (f"one {encode_key(b'short')}", "line 1, one: 5 bytes"),
        (f"one {encode_key(OLD)}\none {encode_key(NEW)}", "line 2: one: duplicate name"),
    ],
)
def test_invalid_key_file_is_named_with_line_and_expected_form(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(BadInput, match=message) as error:
        Security(payload_keys=str(file)).data_converter()
    assert "TEMPORAL_PAYLOAD_KEYS_PATH" in str(error.value) and "not-base64" not in str(error.value)


def test_missing_key_file_is_named() -> None:
    with pytest.raises(BadInput, match="TEMPORAL_PAYLOAD_KEYS_PATH=/nowhere: No such file"):
        Security(payload_keys="/nowhere").data_converter()
