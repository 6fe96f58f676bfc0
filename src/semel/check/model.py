"""Probes, what they conclude, and what a report makes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.check.desk import Desk
    from semel.check.settings import Settings


class CannotCheckError(Exception):
    """The check can not start or go on; the text says what to change. Exit status 2."""


class Profile(StrEnum):
    """By whose rules a service is judged."""

    IETF = "ietf"
    STRIPE = "stripe"
    LENIENT = "lenient"


class Severity(StrEnum):
    """What a profile makes of a probe that found something broken."""

    FAIL = "fail"
    WARN = "warn"
    IGNORE = "ignore"


class Verdict(StrEnum):
    """What a report says of one probe."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    WARN = "warn"
    NOT_OBSERVABLE = "not observable"


class Result(StrEnum):
    """What a probe concludes, before a profile grades it.

    `LOOSE` is safe but not as the standard has it: the profile `ietf` warns, the others
    let it pass.
    """

    HELD = "held"
    LOOSE = "loose"
    BROKEN = "broken"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a probe concludes.

    Attributes:
        result: held, loose, broken or unseen.
        summary: one sentence with figures, as it stands in the report; no key, no credential.
        unseen: what could not be seen although the probe came to a conclusion ("whether the
            effect happened once: give --count"), else None.
    """

    result: Result
    summary: str
    unseen: str | None = None


def held(summary: str, *, unseen: str | None = None) -> Outcome:
    """Conclude that the service does what the probe's rule asks for."""
    return Outcome(Result.HELD, summary, unseen)


def loose(summary: str, *, unseen: str | None = None) -> Outcome:
    """Conclude that nothing is unsafe, but that the standard asks for something else."""
    return Outcome(Result.LOOSE, summary, unseen)


def broken(summary: str, *, unseen: str | None = None) -> Outcome:
    """Conclude that the service breaks the probe's rule."""
    return Outcome(Result.BROKEN, summary, unseen)


def unobserved(why: str) -> Outcome:
    """Conclude that nothing can be concluded; `why` names the option that would help."""
    return Outcome(Result.UNSEEN, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One question put to a service.

    Attributes:
        name: how the command line and reports call it, in lower case with hyphens.
        title: what should hold, as one sentence without a full stop.
        stands_on: the standards or documents that ask for it ("RFC 9110 section 9.2.2").
        sends: what the probe sends, in a sentence or two.
        concludes: when it passes and when it does not.
        fix: what to change in a service that does not pass.
        severities: what each profile makes of `broken`.
        requests: at most this many requests are sent, counting every one.
        run: puts the question.
        in_process: whether it can be put to an application without a network or a process.
    """

    name: str
    title: str
    stands_on: tuple[str, ...]
    sends: str
    concludes: str
    fix: str
    severities: Mapping[Profile, Severity]
    requests: Callable[[Settings], int]
    run: Callable[[Desk], Awaitable[Outcome]]
    in_process: bool = True


def grades(ietf: Severity, stripe: Severity, lenient: Severity) -> Mapping[Profile, Severity]:
    """Return a row of the table probe x profile."""
    return {Profile.IETF: ietf, Profile.STRIPE: stripe, Profile.LENIENT: lenient}


ALWAYS = grades(Severity.FAIL, Severity.FAIL, Severity.FAIL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the report says of one probe.

    Attributes:
        probe: which.
        verdict: pass, fail, warn or not observable, as the profile grades it.
        summary: the probe's own sentence.
        unseen: what could not be seen, or None.
        evidence: what was sent and what came, a line each; keys are masked.
        seconds: how long it took.
    """

    probe: Probe
    verdict: Verdict
    summary: str
    unseen: str | None = None
    evidence: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole of a run.

    Attributes:
        target: method and address that were checked, without credentials.
        profile: by whose rules.
        findings: in the order in which the probes ran.
        requests: how many requests were sent in all.
        seconds: how long the run took.
        version: of Semel.
    """

    target: str
    profile: Profile
    findings: tuple[Finding, ...] = field(default=())
    requests: int = 0
    seconds: float = 0.0
    version: str = ""

    def count(self, verdict: Verdict) -> int:
        """Return how many probes ended in a verdict."""
        return sum(finding.verdict is verdict for finding in self.findings)


def grade(probe: Probe, outcome: Outcome, profile: Profile) -> Verdict:
    """Return what a profile makes of an outcome."""
    match outcome.result:
        case Result.HELD:
            return Verdict.PASS
        case Result.UNSEEN:
            return Verdict.NOT_OBSERVABLE
        case Result.LOOSE:
            return Verdict.WARN if profile is Profile.IETF else Verdict.PASS
        case Result.BROKEN:
            return _OF_BROKEN[probe.severities[profile]]


_OF_BROKEN = {
    Severity.FAIL: Verdict.FAIL,
    Severity.WARN: Verdict.WARN,
    Severity.IGNORE: Verdict.PASS,
}
