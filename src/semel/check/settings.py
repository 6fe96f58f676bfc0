"""What is checked and how: the command line's options as one value."""

from __future__ import annotations

from dataclasses import dataclass

from semel.check.message import RawHeaders
from semel.check.model import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a run is told.

    Attributes:
        url: absolute address of the operation, with its query.
        method: of the operation.
        body: template of its body: `{{uuid}}` and `{{n}}` are filled in for each operation.
        content_type: of the body.
        headers: sent with every request.
        scope_a: headers of the first client (credentials); sent with every request unless a
            probe plays the second client.
        scope_b: headers of a second client, or None.
        profile: by whose rules the service is judged.
        key_header: name of the header with the key.
        quoted: whether keys are sent as RFC 9651 strings, in quotes.
        amount: JSON Pointer or form field of a number that matters, or None to find one.
        other_url: a second address that takes the same body, or None.
        safe_url: an address whose GET is declared safe, or None.
        fail_with: a header that makes the service answer 5xx, or None.
        slow_with: a header that makes the service slow after its effect, or None.
        cookie_with: a header that makes the service set a cookie, or None.
        patience: seconds to wait for a key to come free, as a client would that retries.
        timeout: seconds for one answer.
        race_width: how many requests race.
        race_rounds: how many races.
        crash_rounds: how many kills.
        max_requests: no more requests than this are sent in all.
        rate: requests a second outside races, at most.
    """

    url: str
    method: str = "POST"
    body: bytes = b""
    content_type: str = "application/json"
    headers: RawHeaders = ()
    scope_a: RawHeaders = ()
    scope_b: RawHeaders | None = None
    profile: Profile = Profile.IETF
    key_header: str = "Idempotency-Key"
    quoted: bool = True
    amount: str | None = None
    other_url: str | None = None
    safe_url: str | None = None
    fail_with: tuple[bytes, bytes] | None = None
    slow_with: tuple[bytes, bytes] | None = None
    cookie_with: tuple[bytes, bytes] | None = None
    patience: float = 20.0
    timeout: float = 10.0
    race_width: int = 16
    race_rounds: int = 5
    crash_rounds: int = 6
    max_requests: int = 1000
    rate: float = 200.0
