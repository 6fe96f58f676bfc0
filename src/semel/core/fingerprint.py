"""The fingerprint: does a retry ask for the same thing (rules F1 to F4)?

Two digests are taken of a request. The *fingerprint* is equal for requests that
mean the same: it is made of normal forms and costs tens of microseconds. The
*raw* digest is equal for requests that are the same byte for byte, as nearly
all retries are, and costs a tenth of that. Only where the raw digests differ, a
retry is compared by meaning, with the recipe that the claim was made by.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from semel.core import forms, jsonvalue
from semel.core.framing import frame, text
from semel.core.headers import Parameterised, parse_parameterised, values_of
from semel.core.recipe import Recipe
from semel.errors import RecipeUnknownError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from semel.core.jsonvalue import Pointer
    from semel.core.model import HeaderPairs

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
# JSON is UTF-8 (RFC 8259, section 8.1); in ASCII it is the same bytes.
_UTF8: Final = frozenset({b"utf-8", b"utf8", b"us-ascii"})


@dataclass(frozen=True, slots=True)
class RequestImage:
    """A request as the fingerprint sees it.

    Attributes:
        method: as it was sent.
        path: the concrete path, with its parameters.
        query: what stands behind the question mark, undecoded.
        headers: raw pairs.
        body: the whole body.
    """

    method: str
    path: str
    query: bytes
    headers: HeaderPairs
    body: bytes

    @property
    def content_type(self) -> bytes:
        """The value of Content-Type; all of them, should there be several."""
        return b", ".join(values_of(self.headers, b"content-type"))


@dataclass(frozen=True, slots=True)
class FingerprintFunction:
    """An application's own fingerprint of a request (rule F4).

    What it returns stands for query, headers and body; method and path are
    always compared. A new version is another recipe: claims made by the old one
    can be compared only while the old function is given too.

    Attributes:
        name: letters, digits, `_`, `.` and `-`.
        version: 1 or more; to be raised whenever `fn` returns something else.
        fn: returns equal bytes for requests that mean the same.
    """

    name: str
    version: int
    fn: Callable[[RequestImage], bytes]

    def __post_init__(self) -> None:
        """Refuse a name or version that a recipe can not carry (`UsageError`)."""
        if not _NAME.fullmatch(self.name) or self.version < 1:
            raise UsageError("a fingerprint function needs a plain name and a version from 1 up")

    @property
    def id(self) -> str:
        """Name and version, as a recipe carries them."""
        return f"{self.name}@{self.version}"


class Fingerprinter:
    """Takes fingerprints by one recipe, and follows the recipes of older ones."""

    def __init__(
        self,
        *,
        ignore: Sequence[str] = (),
        headers: Sequence[str] = (),
        secrets: Sequence[bytes] = (),
        function: FingerprintFunction | None = None,
        functions: Iterable[FingerprintFunction] = (),
    ) -> None:
        """Fix the recipe.

        Args:
            ignore: JSON Pointers of what does not make a different request;
                `/name` also means the field of a form.
            headers: names of headers that do make a different request.
            secrets: the secrets of the HMAC, the current one first. Older ones
                are needed until the claims made with them have expired. With
                none, anybody who reads the table can try out what was sent.
            function: takes the place of fields and headers.
            functions: others that stored claims may have been made by.

        Raises:
            UsageError: a pointer, header name or secret can not be used, or two
                functions share name and version.
        """
        self._secrets = {_secret_id(secret): secret for secret in secrets}
        known = [function, *functions] if function else [*functions]
        self._functions = {each.id: each for each in known}
        if len(self._secrets) < len(secrets) or len(self._functions) < len(known):
            raise UsageError("every secret and every fingerprint function is to be given once")
        self.recipe: Final = Recipe(
            ignore=tuple(ignore),
            headers=tuple(headers),
            function=function.id if function else None,
            secret=next(iter(self._secrets), None),
        )
        self.recipe_text: Final = self.recipe.encode()
        current = secrets[0] if secrets else b""
        self._raw_key = hmac.digest(current, b"semel raw digest", "sha256")

    def of(self, image: RequestImage) -> Fingerprint:
        """Return the fingerprint of a request; its digests are taken when asked for."""
        return Fingerprint(self, image)

    def digest(self, recipe: Recipe, image: RequestImage) -> bytes:
        """Take the fingerprint of a request by a given recipe.

        Raises:
            RecipeUnknownError: the recipe names a secret or a function that this
                process does not have.
        """
        function = self._functions.get(recipe.function or "")
        if recipe.function and not function:
            raise RecipeUnknownError(f"fingerprint function {recipe.function} is not given here")
        secret = self._secrets.get(recipe.secret or "")
        if recipe.secret and not secret:
            raise RecipeUnknownError(f"the secret with the id {recipe.secret} is not given here")
        parts = (b"function", function.fn(image)) if function else _fields(recipe, image)
        message = frame(b"semel 1", text(image.method), text(image.path), *parts)
        if secret:
            return hmac.digest(secret, message, "sha256")
        return hashlib.sha256(message).digest()

    def raw(self, image: RequestImage) -> bytes:
        """Take the digest that is equal only for byte-identical requests."""
        # A custom function may look at any header, the recipe's fields at few.
        headers = (
            [item for pair in image.headers for item in pair]
            if self.recipe.function
            else _included(self.recipe, image)
        )
        message = frame(
            text(self.recipe_text),
            text(image.method),
            text(image.path),
            image.query,
            image.content_type,
            image.body,
            *headers,
        )
        return hashlib.blake2b(message, digest_size=16, key=self._raw_key).digest()


class Fingerprint:
    """The fingerprint of one request; a `semel.core.model.RequestFingerprint`."""

    __slots__ = ("_digest", "_fingerprinter", "_image", "_raw")

    def __init__(self, fingerprinter: Fingerprinter, image: RequestImage) -> None:
        """Remember what the digests are to be taken of."""
        self._fingerprinter = fingerprinter
        self._image = image
        self._digest: bytes | None = None
        self._raw: bytes | None = None

    @property
    def recipe(self) -> str:
        """The recipe that `digest` is made by."""
        return self._fingerprinter.recipe_text

    @property
    def digest(self) -> bytes:
        """32 bytes, equal for requests that mean the same."""
        if self._digest is None:
            self._digest = self._fingerprinter.digest(self._fingerprinter.recipe, self._image)
        return self._digest

    @property
    def raw(self) -> bytes:
        """16 bytes, equal only for byte-identical requests under one recipe."""
        if self._raw is None:
            self._raw = self._fingerprinter.raw(self._image)
        return self._raw

    def matches(self, recipe: str, digest: bytes, raw: bytes) -> bool:
        """Compare with a stored request, by the recipe that was stored with it.

        Raises:
            RecipeUnknownError: this process can not follow that recipe.
        """
        if recipe != self.recipe:
            stored = Recipe.decode(recipe)
            return hmac.compare_digest(self._fingerprinter.digest(stored, self._image), digest)
        return hmac.compare_digest(self.raw, raw) or hmac.compare_digest(self.digest, digest)


def _secret_id(secret: bytes) -> str:
    if not secret:
        raise UsageError("a secret for fingerprints must not be empty")
    return hmac.digest(secret, b"semel secret id", "sha256")[:4].hex()


def _included(recipe: Recipe, image: RequestImage) -> list[bytes]:
    return [
        frame(*(value.strip(b" \t") for value in values_of(image.headers, name.encode())))
        for name in recipe.headers
    ]


def _fields(recipe: Recipe, image: RequestImage) -> list[bytes]:
    pointers = [jsonvalue.parse_pointer(pointer) for pointer in recipe.ignore]
    media = parse_parameterised(image.content_type) or Parameterised(image.content_type)
    kind, form, implied = _normal_form(media, image.body, pointers)
    given = [media.value]
    for pair in sorted(media.parameters):
        if pair[0] != implied:
            given += pair
    fields = [forms.canonical_query(image.query), frame(*given), kind, form]
    return fields + _included(recipe, image) if recipe.headers else fields


def _normal_form(
    media: Parameterised, body: bytes, ignore: Sequence[Pointer]
) -> tuple[bytes, bytes, bytes]:
    """Return the kind of normal form, the form, and the parameter that is now implied."""
    form, kind, implied = None, b"raw", b""
    if media.is_json and (media.get(b"charset") or b"utf-8").lower() in _UTF8:
        form, kind, implied = jsonvalue.normal_form(body, ignore), b"json", b"charset"
    elif media.value == b"multipart/form-data":
        boundary = media.get(b"boundary") or b""
        form, kind, implied = forms.multipart(body, boundary, ignore), b"multipart", b"boundary"
    elif media.value == b"application/x-www-form-urlencoded":
        form, kind = forms.urlencoded(body, ignore), b"form"
    return (b"raw", body, b"") if form is None else (kind, form, implied)
