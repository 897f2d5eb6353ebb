"""Documents as the bytes of a row: compressed, with a digest that tells when they are no longer what was stored."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from pyxfer import documents
from pyxfer.errors import DocumentError, StoreError
from pyxfer.files import MAX_READ_BYTES
from pyxfer.json_text import to_bare_json
from pyxfer.model import Run

# Of the digest of a baseline, whatever the documents of later ones have.
_DIGEST_VERSION = 1


def pack(data: bytes) -> tuple[str, bytes]:
    """The digest of a document, and what is stored of it."""
    return hashlib.sha256(data).hexdigest(), zlib.compress(data)


def packed_run(run: Run) -> tuple[str, bytes]:
    """The same of a run."""
    return pack(to_bare_json(run))


def unpack(run_id: str, sha256: str, packed: bytes) -> bytes:
    """The document of a run as it was stored; `StoreError` where the bytes have changed since."""
    data = _decompressed(packed)
    if data is None or hashlib.sha256(data).hexdigest() != sha256:
        raise StoreError(
            f"the document of the run {run_id} in the store is damaged: it is not what was stored. The others can "
            "still be read; check the disk, and take this one from a backup"
        )
    return data


def unpack_run(run_id: str, sha256: str, packed: bytes) -> Run:
    """The run that was stored; `StoreError` where the bytes have changed since."""
    return decode_run(run_id, unpack(run_id, sha256, packed))


def decode_run(run_id: str, data: bytes) -> Run:
    """The run in a document that is as it was stored."""
    try:
        return documents.decode(data, f"the run {run_id} in the store")
    except DocumentError as error:
        raise StoreError(str(error)) from error


def _decompressed(packed: bytes) -> bytes | None:
    """None where they are no such bytes, or more than any document has."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, MAX_READ_BYTES)
    except zlib.error:
        return None
    return data if unpacker.eof else None


def digest_of_parts(name: str, fingerprint: str, made_at: str, labels: dict[str, str], runs: Sequence[bytes]) -> str:
    """The digest of a baseline, of the very bytes that were stored.

    Made of the runs as they are read today it would be another one as soon as a later pyxfer adds a field to them.
    """
    document = {
        "name": msgspec.Raw(to_bare_json(name)),
        "fingerprint": msgspec.Raw(fingerprint.encode()),
        "made_at": msgspec.Raw(to_bare_json(made_at)),
        "labels": msgspec.Raw(to_bare_json(labels)),
        "runs": [msgspec.Raw(run) for run in runs],
        "kind": "baseline",
        "schema_version": _DIGEST_VERSION,
    }
    return hashlib.sha256(msgspec.json.encode(document)).hexdigest()


def labels_to_text(labels: dict[str, str]) -> str:
    """ASCII alone: a null character, and half of a surrogate pair, come back as they were."""
    return json.dumps(labels)


def labels_from_text(text: str) -> dict[str, str]:
    """What was given, or what can be read of it where somebody has changed it."""
    try:
        labels: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {}
