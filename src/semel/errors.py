"""Every error that Semel raises on purpose.

One root, so that `except SemelError` is enough; below it one branch for each
party that can do something about the failure: the programmer (`UsageError`),
the operator (`StoreError`), and the code that holds a claim (`ClaimError`).
Ordinary outcomes (a replay, a conflict) are values, not errors: see
`semel.core.model`.
"""

from __future__ import annotations


class SemelError(Exception):
    """The root of all errors that Semel raises."""


class UsageError(SemelError, ValueError):
    """The application used Semel in a way that can not keep its promise."""


class KeyMalformedError(SemelError, ValueError):
    """A key that breaks the syntax (RFC 9651 string, or 1 to 255 visible ASCII).

    Its text names the rule that was broken and never echoes the key.
    """


class ScopeMissingError(SemelError, ValueError):
    """The scope of a request came out empty, so its key belongs to nobody."""


class HeaderMalformedError(SemelError, ValueError):
    """A header that is to be stored or sent holds CR, LF or NUL.

    Whoever reads the answer would see another header, or another answer.
    """

    def __init__(self) -> None:
        """Say what is wrong without echoing the header."""
        super().__init__("a header name or value holds CR, LF or NUL")


class BodyTooLargeError(SemelError, ValueError):
    """A guarded request's body exceeds `max_request_bytes`."""

    def __init__(self, limit: int) -> None:
        """Keep the limit, in bytes, that was exceeded."""
        super().__init__(f"the body exceeds {limit} bytes")
        self.limit = limit


class RecipeUnknownError(SemelError):
    """A stored fingerprint was made by a recipe that this process can not repeat.

    It was written by a newer version, by another fingerprint function, or with
    a secret that this process was not given. Executing would be a guess.
    """


class AccessRefusedError(SemelError):
    """Raised by a `scope` or `authorize` function to refuse a request.

    Attributes:
        status: the HTTP status of the refusal (401, 403, 429, …).
        detail: one sentence for the caller.
        headers: extra response headers, such as `WWW-Authenticate`.
    """

    def __init__(
        self,
        status: int = 403,
        detail: str = "access refused",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Keep what the refusal should answer."""
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers


class StoreError(SemelError):
    """The store failed; the driver's own error is the `__cause__`."""


class StoreUnavailableError(StoreError):
    """The store can not be reached or ended the transaction.

    Attributes:
        outcome_unknown: true where the statement may have taken effect although
            no answer came back (a connection lost after sending).
    """

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        """Keep whether the lost statement may have taken effect."""
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class StoreConflictError(StoreError):
    """The database aborted the transaction for another one's sake.

    Serialization failure, deadlock, lock time-out, busy file: nothing took
    effect, and the same work may succeed when it is started again.
    """


class StoreSchemaError(StoreError):
    """Semel's tables are missing or of another version than this code needs."""


class ClaimError(SemelError):
    """A claim can not be used as asked."""


class ClaimLostError(ClaimError):
    """The claim belongs to another owner now; nothing was changed."""


class ClaimClosedError(ClaimError):
    """The claim is settled: its transaction is over."""


class CommitFailedError(ClaimError):
    """A claim could not be settled: nothing of this request was committed.

    It is no `OSError` on purpose: frameworks take those for a client that left.

    Attributes:
        decision: what a look afterwards says about the key: the answer of a rival
            that was quicker, in flight, in doubt; `None` where the key is free.
    """

    def __init__(self, message: str, decision: object | None = None) -> None:
        """Keep what the look afterwards found."""
        super().__init__(message)
        self.decision = decision
