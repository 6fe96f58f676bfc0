"""The fingerprint of a request, and how a retry is compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from semel.core.fingerprint import Fingerprinter, FingerprintFunction, RequestImage
from semel.errors import RecipeUnknownError, UsageError

if TYPE_CHECKING:
    from semel.core.model import RequestFingerprint

JSON = ((b"content-type", b"application/json"), (b"x-version", b"7"))
PAY = RequestImage("POST", "/payments", b"dry=1&to=a", JSON, b'{"amount": 500, "at": 1}')


def typed(content_type: bytes, body: bytes) -> RequestImage:
    return replace(PAY, headers=((b"Content-Type", content_type),), body=body)


def retried(
    first: Fingerprinter, image: RequestImage, second: Fingerprinter, again: RequestImage
) -> bool:
    """Store one request's fingerprint, and compare another request with it."""
    stored, fresh = first.of(image), second.of(again)
    return fresh.matches(stored.recipe, stored.digest, stored.raw)


def same(one: RequestImage, other: RequestImage, **settings: Any) -> bool:
    printer = Fingerprinter(**settings)
    equal = printer.of(one).digest == printer.of(other).digest
    assert equal == retried(printer, one, printer, other) == retried(printer, other, printer, one)
    return equal


@pytest.mark.rule("F1")
@pytest.mark.parametrize(
    "other",
    [
        replace(PAY, method="PATCH"),
        replace(PAY, method="post"),
        replace(PAY, path="/payments/7"),
        replace(PAY, path="/payments\udc80"),
        replace(PAY, query=b"dry=1&to=b"),
        replace(PAY, query=b""),
        replace(PAY, body=b'{"amount": 501, "at": 1}'),
        replace(PAY, body=b""),
        typed(b"application/merge-patch+json", PAY.body),
        typed(b"application/json; profile=x", PAY.body),
        typed(b"text/plain", PAY.body),
        replace(PAY, headers=()),
        replace(PAY, headers=(*JSON, *JSON)),
    ],
    ids=range(13),
)
def test_every_part_of_a_request_is_covered(other: RequestImage) -> None:
    assert not same(PAY, other)


@pytest.mark.rule("F1")
@pytest.mark.parametrize(
    "other",
    [
        replace(PAY, query=b"to=a&dry=%31"),
        replace(PAY, body=b' {"at":1.0,"amount":5e2}'),
        replace(PAY, headers=((b"Content-Type", b"Application/JSON;charset=UTF-8"),)),
        replace(PAY, headers=((b"content-type", b"application/json;"), (b"date", b"now"))),
    ],
    ids=range(4),
)
def test_what_means_the_same_has_one_fingerprint(other: RequestImage) -> None:
    assert same(PAY, other)
    assert Fingerprinter().of(PAY).raw != Fingerprinter().of(other).raw


@pytest.mark.rule("F1")
def test_parts_do_not_run_into_each_other() -> None:
    assert not same(replace(PAY, method="POST/", path="x"), replace(PAY, method="POST", path="/x"))
    assert not same(typed(b"text/plain", b"a"), typed(b"text/plaina", b""))


@pytest.mark.rule("F2")
@pytest.mark.parametrize("content_type", [b"application/json", b"application/problem+json"])
def test_a_json_body_without_normal_form_is_compared_by_bytes(content_type: bytes) -> None:
    bodies = [
        b'{"a":1,"a":2}',
        b'{"a": 1,"a":2}',
        b"[" * 100_000,
        b"[1,",
        b"",
        b'"\xff"',
        b'"\xfe"',
    ]
    for body in bodies:
        assert [same(typed(content_type, body), typed(content_type, each)) for each in bodies] == [
            body == each for each in bodies
        ]


@pytest.mark.rule("F2")
def test_raw_bytes_never_pass_for_a_normal_form() -> None:
    assert not same(typed(b"application/json", b'[NaN,"1.5"]'), typed(b"application/json", b"1.5"))


@pytest.mark.rule("F2")
def test_json_in_another_encoding_is_compared_by_bytes() -> None:
    latin = b"application/json; charset=latin-1"
    assert not same(typed(latin, b'{"a":1}'), typed(latin, b'{"a": 1}'))
    assert same(
        typed(b"application/json; charset=us-ascii", b"1"), typed(b"application/json", b"1.0")
    )


@pytest.mark.rule("F3")
def test_forms_are_compared_by_pairs_and_parts() -> None:
    form = b"application/x-www-form-urlencoded"
    assert same(typed(form, b"a=%31"), typed(form, b"a=1"))
    assert not same(typed(form, b"a=1&b=2"), typed(form, b"b=2&a=1"))
    assert not same(typed(form, b"a=1"), typed(form + b"; charset=latin-1", b"a=1"))
    assert not same(typed(b"text/plain", b"a=%31"), typed(b"text/plain", b"a=1"))

    part = b'--%b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--%b--\r\n'
    one = typed(b"multipart/form-data; boundary=B", part % (b"B", b"B"))
    other = typed(b'multipart/form-data; boundary="C C"', part % (b"C C", b"C C"))
    assert same(one, other)
    assert not same(one, typed(b"multipart/form-data; boundary=X", one.body))
    assert not same(one, typed(b"multipart/form-data", one.body))


@pytest.mark.rule("F4")
def test_ignored_fields_and_included_headers() -> None:
    later = replace(PAY, body=b'{"amount": 500, "at": 2}')
    assert not same(PAY, later)
    assert same(PAY, later, ignore=("/at",))
    assert not same(PAY, replace(later, body=b'{"amount": 5, "at": 2}'), ignore=("/at",))

    eight = replace(PAY, headers=(JSON[0], (b"X-Version", b"8")))
    assert same(PAY, eight)
    assert not same(PAY, eight, headers=("X-Version",))
    assert same(PAY, replace(PAY, headers=(*JSON, (b"x-trace", b"1"))), headers=("X-Version",))
    twice = replace(PAY, headers=(*JSON, JSON[1]))
    assert not same(PAY, twice, headers=("x-version",))


def by_amount(image: RequestImage) -> bytes:
    return image.body.split(b",")[0] + dict(image.headers).get(b"x-version", b"")


@pytest.mark.rule("F4")
def test_a_function_stands_for_query_headers_and_body() -> None:
    function = FingerprintFunction("by-amount", 1, by_amount)
    later = replace(PAY, query=b"", body=b'{"amount": 500, "at": 2}')
    assert same(PAY, later, function=function)
    assert not same(PAY, replace(PAY, path="/refunds"), function=function)
    assert not same(PAY, replace(PAY, body=b"{}"), function=function)
    # The raw digest must not vouch for a header that the function looks at.
    assert not same(PAY, replace(PAY, headers=JSON[:1]), function=function)
    assert Fingerprinter(function=function).of(PAY).recipe == "1 f=by-amount@1"


@pytest.mark.rule("F1", "F4")
def test_a_changed_function_still_compares_what_the_old_one_wrote() -> None:
    old = FingerprintFunction("pay", 1, by_amount)
    new = FingerprintFunction("pay", 2, lambda image: image.body)
    first = Fingerprinter(function=old)
    later = replace(PAY, body=b'{"amount": 500, "at": 2}')
    assert retried(first, PAY, Fingerprinter(function=new, functions=[old]), later)
    assert retried(first, PAY, Fingerprinter(functions=[old]), later)
    with pytest.raises(RecipeUnknownError, match="pay@1"):
        retried(first, PAY, Fingerprinter(function=new), PAY)


@pytest.mark.rule("F1")
def test_a_retry_is_compared_by_the_recipe_of_the_first_request() -> None:
    later = replace(PAY, body=b'{"amount": 500, "at": 2}')
    plain, ignoring = Fingerprinter(), Fingerprinter(ignore=("/at",), headers=("x-version",))
    assert retried(plain, PAY, ignoring, PAY)
    assert not retried(plain, PAY, ignoring, later)
    assert retried(ignoring, PAY, plain, later)


@pytest.mark.rule("F1")
def test_rotating_the_secret_does_not_disturb_retries() -> None:
    old, new = b"old secret", b"new secret"
    respelled = replace(PAY, body=b'{"amount": 500.0, "at": 1}')
    changed = replace(PAY, body=b'{"amount": 501, "at": 1}')
    for before, after in [
        ([], [old]),
        ([old], [new, old]),
        ([old], [old]),
        ([new, old], [old, new]),
    ]:
        first, second = Fingerprinter(secrets=before), Fingerprinter(secrets=after)
        assert retried(first, PAY, second, PAY)
        assert retried(first, PAY, second, respelled)
        assert not retried(first, PAY, second, changed)
    with pytest.raises(RecipeUnknownError, match="secret"):
        retried(Fingerprinter(secrets=[old]), PAY, Fingerprinter(secrets=[new]), PAY)
    with pytest.raises(RecipeUnknownError, match="secret"):
        retried(Fingerprinter(secrets=[old]), PAY, Fingerprinter(), PAY)


@pytest.mark.rule("F1")
def test_digests_are_keyed_by_the_secret() -> None:
    prints = [Fingerprinter(secrets=secrets).of(PAY) for secrets in ([], [b"a"], [b"b"])]
    assert len({each.digest for each in prints}) == 3
    assert len({each.raw for each in prints}) == 3
    assert len({each.recipe for each in prints}) == 3
    assert all(len(each.digest) == 32 and len(each.raw) == 16 for each in prints)
    assert b"secret".hex() not in Fingerprinter(secrets=[b"secret"]).recipe_text


@pytest.mark.rule("F1")
def test_a_recipe_of_a_newer_version_is_refused_not_guessed() -> None:
    fresh = Fingerprinter().of(PAY)
    with pytest.raises(RecipeUnknownError):
        fresh.matches("2", fresh.digest, fresh.raw)


@pytest.mark.rule("B8")
def test_a_byte_identical_retry_is_known_without_a_normal_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[bytes] = []

    def counted(body: bytes, _ignore: object) -> bytes:
        calls.append(body)
        return body

    monkeypatch.setattr("semel.core.jsonvalue.normal_form", counted)
    printer = Fingerprinter()
    first = printer.of(PAY)
    stored = (first.recipe, first.digest, first.raw)
    assert first.digest == stored[1]
    assert printer.of(PAY).matches(*stored)
    assert calls == [PAY.body]
    assert not printer.of(replace(PAY, body=b"{}")).matches(*stored)
    assert calls == [PAY.body, b"{}"]


@pytest.mark.rule("F1")
def test_it_is_what_the_model_asks_for() -> None:
    request: RequestFingerprint = Fingerprinter().of(PAY)
    assert request.recipe == "1"
    assert (
        request.digest.hex() == "f11d5020e6b6896d6032de23b4b75b8dee1b6051a66cd368a67ca5c8fbccebe2"
    )  # what is stored must not drift


@pytest.mark.rule("F4")
def test_settings_that_can_not_work_are_refused() -> None:
    function = FingerprintFunction("pay", 1, by_amount)
    with pytest.raises(UsageError, match="given once"):
        Fingerprinter(secrets=[b"a", b"a"])
    with pytest.raises(UsageError, match="given once"):
        Fingerprinter(function=function, functions=[function])
    with pytest.raises(UsageError, match="empty"):
        Fingerprinter(secrets=[b""])
    with pytest.raises(UsageError, match="whole body"):
        Fingerprinter(ignore=("",))
    for name, version in [("", 1), ("a b", 1), ("a@b", 1), ("a", 0)]:
        with pytest.raises(UsageError, match="plain name"):
            FingerprintFunction(name, version, by_amount)
