"""The results as files: `results.json`, and `RESULTS.md` made of it by a template.

A run replaces the figures that it measured and leaves the others as they are, so that
one rule can be measured again alone; each figure says where it comes from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template
from typing import Any

from bench.figures import KINDS, NOT_MEASURED, Figure

JSON = "results.json"
PAGE = "RESULTS.md"
TEMPLATE = Path(__file__).with_name("RESULTS.template.md")

Results = dict[str, dict[str, Any]]
MET = {True: "yes", False: "**no**", None: "-"}


def read(folder: Path) -> Results:
    """Return the results of earlier runs."""
    file = folder / JSON
    if not file.exists():
        return {}
    found: Results = json.loads(file.read_text(encoding="utf-8"))
    return found


def write(folder: Path, results: Results) -> None:
    """Write both files."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
    (folder / JSON).write_text(text, encoding="utf-8")
    (folder / PAGE).write_text(render(results), encoding="utf-8")


def merged(
    earlier: Results,
    figures: Iterable[Figure],
    left_out: Mapping[str, str],
    origin: Mapping[str, Any],
) -> Results:
    """Return earlier results with those of a run in their place.

    Args:
        earlier: what there was.
        figures: what the run measured.
        left_out: by the figure's name, why the run could not measure it.
        origin: command, date and surroundings of the run.
    """
    found = {**earlier}
    for figure in figures:
        found[figure.kind.name] = {**figure.as_result(), **origin}
    for name, reason in left_out.items():
        kind = KINDS[name]
        found[name] = {"rule": kind.rule, "value": None, "bar": kind.bar, "reason": reason}
        found[name] |= origin
    for name, (rule, reason) in NOT_MEASURED.items():
        found[name] = {"rule": rule, "value": None, "reason": reason}
    known = [*KINDS, *NOT_MEASURED]
    return {name: found[name] for name in sorted(known, key=_order) if name in found}


def render(results: Results) -> str:
    """Return the page."""
    measured = {name: each for name, each in results.items() if each["value"] is not None}
    template = Template(TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(
        figures="\n".join(_row(name, each) for name, each in measured.items()),
        missing="\n".join(
            f"| {each['rule']} | `{name}` | {each['reason']} |"
            for name, each in results.items()
            if each["value"] is None
        ),
        sides="\n".join(_side_rows(measured)),
        runs="\n\n".join(_runs(measured)),
    )


def _order(name: str) -> tuple[str, int]:
    return name[:2], [*KINDS, *NOT_MEASURED].index(name)


def _row(name: str, each: Mapping[str, Any]) -> str:
    spread = f"{_number(each['low'])} … {_number(each['high'])}"
    cells = (
        each["rule"],
        KINDS[name].what,
        each["bar"],
        f"{_number(each['value'])} {each['unit']}".strip(),
        spread,
        len(each["rounds"]),
        MET[each["met"]],
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _number(value: float) -> str:
    """Return two digits behind the point for ratios, fewer for larger numbers."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"  # noqa: PLR2004 - digits


def _side_rows(measured: Results) -> Iterable[str]:
    """Yield a row for each side that was loaded over HTTP, once for each rule."""
    seen = set()
    for each in measured.values():
        for name, side in each["sides"].items():
            if "per_second" not in side or (each["rule"], name) in seen:
                continue
            seen.add((each["rule"], name))
            cells = (
                each["rule"],
                f"`{name}`",
                side["per_second"],
                side["p50_ms"],
                side["p99_ms"],
                side["server_cpu_us"] if side["server_cpu_us"] is not None else "-",
                side["answers"],
                side["errors"],
            )
            yield f"| {' | '.join(str(cell) for cell in cells)} |"


def _runs(measured: Results) -> Iterable[str]:
    """Yield a paragraph for each run that a figure comes from."""
    rules: dict[tuple[str, str], set[str]] = {}
    surroundings: dict[tuple[str, str], Mapping[str, Any]] = {}
    for each in measured.values():
        run = each["date"], each["command"]
        rules.setdefault(run, set()).add(each["rule"])
        surroundings[run] = each["environment"]
    for (date, command), environment in sorted(surroundings.items()):
        yield _run(", ".join(sorted(rules[date, command])), date, command, environment)


def _run(rules: str, date: str, command: str, environment: Mapping[str, Any]) -> str:
    packages = ", ".join(f"{name} {found}" for name, found in environment["packages"].items())
    theirs = ", ".join(f"{name} {found}" for name, found in environment["idemkit_packages"].items())
    lines = [
        f"{rules}: `{command}`, {date}, commit {environment['commit']}.",
        f"{environment['python']}, PostgreSQL {environment['postgresql']}.",
        f"{environment['cores']} cores ({environment['processor']}, {environment['system']}).",
        f"Load average before it: {environment['load_average_before']}.",
        f"Packages: {packages}.",
    ]
    if theirs:
        lines.append(f"In idemkit's environment: {theirs}.")
    return "\n".join(lines)
