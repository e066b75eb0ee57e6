"""The part of RFC 6455 that Loki's ``tail`` and ``pods/exec`` need: the handshake's key and single frames."""

from __future__ import annotations

import base64
import hashlib
import os
from enum import IntEnum
from typing import BinaryIO, NamedTuple

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MAX_PAYLOAD = 64 * 1024 * 1024


class Opcode(IntEnum):
    """The kind of a frame."""

    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class Frame(NamedTuple):
    """One frame, unmasked."""

    opcode: int
    payload: bytes


def accept_key(key: str) -> str:
    """Return the answer to the client's ``Sec-WebSocket-Key``."""
    digest = hashlib.sha1(key.encode() + _MAGIC, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def close_payload(code: int, reason: str) -> bytes:
    """Return the payload of a close frame."""
    return code.to_bytes(2, "big") + reason.encode()


def write_frame(stream: BinaryIO, opcode: Opcode, payload: bytes = b"", masked: bool = False) -> None:
    """Send one frame; a client masks its frames. Raises ``OSError`` if the peer is gone."""
    length = len(payload)
    bit = 0x80 if masked else 0
    if length < 126:
        head = bytes([0x80 | opcode, bit | length])
    elif length < 1 << 16:
        head = bytes([0x80 | opcode, bit | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([0x80 | opcode, bit | 127]) + length.to_bytes(8, "big")
    if masked:
        mask = os.urandom(4)
        stream.write(head + mask + _masked(payload, mask))
    else:
        stream.write(head + payload)
    stream.flush()


def read_frame(stream: BinaryIO) -> Frame | None:
    """Return the next frame; None if the peer is gone or sent an invalid frame."""
    head = stream.read(2)
    if len(head) < 2:
        return None
    length = head[1] & 0x7F
    if length >= 126:
        length = int.from_bytes(stream.read(2 if length == 126 else 8), "big")
    if length > _MAX_PAYLOAD:
        return None
    mask = stream.read(4) if head[1] & 0x80 else b""
    payload = stream.read(length)
    if len(payload) < length:
        return None
    return Frame(head[0] & 0x0F, _masked(payload, mask) if mask else payload)


def _masked(payload: bytes, mask: bytes) -> bytes:
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
