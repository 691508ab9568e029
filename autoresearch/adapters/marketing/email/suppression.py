"""Who must never be written to again: one list for all campaigns, append-only, without an address in it.

salt               of this list; made once, readable by the owner only
suppressed.tsv     one line per event: UTC time, salted hash of the address, reason
"""

from __future__ import annotations

import hashlib
import hmac
import os
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from autoresearch.adapters.marketing.live import made_once
from autoresearch.core import EnvironmentNotReadyError

_NAME = "suppressed.tsv"


def address_hash(folder: Path, address: str) -> str:
    """Return the salted hash that an address is known by here, 32 hexadecimal digits.

    Upper and lower case are one, in the part before the @ too: a person who leaves means every spelling.
    """
    return hashlib.sha256(f"{_salt(folder)}\0{address.strip().casefold()}".encode()).hexdigest()[:32]


@lru_cache(maxsize=16)  # a list of a hundred thousand asks for each of its addresses
def _salt(folder: Path) -> str:
    return made_once(folder, "salt")


def suppress(folder: Path, hashed: str, reason: str) -> None:
    """Put an address on the list for good; on the disk when this returns.

    Args:
        folder: Where the list lies; shared by all campaigns of an organisation.
        hashed: What `address_hash` returned.
        reason: A word: `unsubscribe`, `complaint`, `bounce`.

    Raises:
        EnvironmentNotReadyError: If the list cannot be written; then nothing more may be sent.
    """
    line = f"{datetime.now(UTC).isoformat(timespec='seconds')}\t{hashed}\t{reason}\n".encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # One call, so that two processes never write into each other's line.
            written = os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unwritable(folder, error.strerror or str(error)) from error
    if written != len(line):
        raise _unwritable(folder, "the disk is full")


def suppressed(folder: Path) -> frozenset[str]:
    """Return the hashes of all addresses on the list."""
    try:
        lines = (folder / _NAME).read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return frozenset()
    # A line that a full disk cut short has no reason; half a hash suppresses nobody by accident.
    rows = [line.split("\t") for line in lines]
    return frozenset(row[1] for row in rows if len(row) == 3)


def unsubscribe_token(secret: str, hashed: str, unit: str = "") -> str:
    """Return the last part of an unsubscribe address: the hash, and proof that we made it.

    Args:
        secret: The campaign's.
        hashed: The address, as `address_hash` returned it.
        unit: Whom the mail was assigned as, where that is not the address: the hash of its company's domain.
    """
    payload = f"{hashed}.{unit}" if unit and unit != hashed else hashed
    return f"{payload}-{_proof(secret, payload)}"


def hash_in_token(secret: str, token: str) -> str | None:
    """Return the address hash in a token; None where we did not make it."""
    payload = _payload(secret, token)
    return None if payload is None else payload.partition(".")[0]


def unit_in_token(secret: str, token: str) -> str | None:
    """Return whom a token's mail was assigned as: its address, or its company; None where we did not make it."""
    payload = _payload(secret, token)
    return None if payload is None else payload.rpartition(".")[2]


def _payload(secret: str, token: str) -> str | None:
    payload, _, proof = token.partition("-")
    return payload if hmac.compare_digest(_proof(secret, payload).encode(), proof.encode()) else None


def _proof(secret: str, hashed: str) -> str:
    return hmac.new(secret.encode(), f"unsubscribe\0{hashed}".encode(), hashlib.sha256).hexdigest()[:32]


def _unwritable(folder: Path, why: str) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"The suppression list in {folder} cannot be written: {why}.\n"
        "Nothing may be sent until it can. Free some space or make the folder writable."
    )
