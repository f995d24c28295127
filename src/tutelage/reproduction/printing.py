"""How the papers' figures about masks are shown on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tutelage.console import console, emit, say, table
from tutelage.privacy.errors import RecipeError
from tutelage.recipes.learners import has_torch, possible
from tutelage.reproduction.findings import Finding

Progress = Callable[[str, int, int], None]


def show(findings: list[Finding]) -> None:
    """Print every table, then every check: what holds and what does not should be the last thing on the screen."""
    for finding in findings:
        say(f"\n{finding.title}", style="bold")
        if finding.missing:
            say(f"skipped: {finding.missing}", style="yellow")
        if finding.failed:
            say(f"failed: {finding.failed}", style="red")
        for one in finding.tables:
            made = table(one.title, *one.headings)
            for row in one.rows:
                made.add_row(*(cell.replace("**", "") for cell in row))
            console().print(made)
        for remark in finding.remarks:
            say(remark)
    checks = [(finding.name, check) for finding in findings for check in finding.checks]
    if checks:
        say("\nWhat must show", style="bold")
    for name, check in checks:
        word, colour = ("holds", "green") if check.holds else ("FAILS", "red")
        say(f"{word}  {name}: {check.claim}: {check.found}", style=colour)


def made(
    only: tuple[str, ...],
    out: Path,
    *,
    small: bool,
    data: Path | None,
    public_data: bool,
    seeds: int,
    device: str,
    tell: Progress,
) -> list[Finding]:
    """Make or read what was asked for, and write the page after each: hours of it may be lost otherwise."""
    if not has_torch():
        raise RecipeError("`torch` must be installed for this (pip install 'tutelage[torch]'). Got no such package instead.")
    possible(device=device)
    from tutelage.reproduction import segmentation
    from tutelage.reproduction.pools import Bench

    items = segmentation.chosen(only)
    bench = Bench(out=out, data=data, small=small, public_data=public_data, seeds=seeds, device=device, progress=tell)
    findings = []
    for item in items:
        tell(item.title, 0, 1)
        findings.append(segmentation.reproduce(item, bench))
        segmentation.write(segmentation.beside(findings, bench), out, device=device)
        tell(item.title, 1, 1)
    return findings


def told(findings: list[Finding], out: Path, *, as_json: bool) -> int:
    """Print what was made; give the exit code: 1 where a check fails, 2 where something failed or nothing could be made."""
    from tutelage.reproduction import segmentation

    if as_json:
        emit(segmentation.document(findings))
    else:
        show(findings)
        say("\n" + "\n".join(f"wrote {file}" for file in segmentation.pages(out)))
    if any(finding.failed for finding in findings) or all(finding.missing for finding in findings):
        return 2
    return int(any(not check.holds for finding in findings for check in finding.checks))
