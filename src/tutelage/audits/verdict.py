"""What an audit found: lower bounds beside the claim, the sentence that says which one it breaks, and the files of both kinds."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.audits.bounds import ALARM, Bound
from tutelage.audits.game import Game, scaled
from tutelage.audits.roc import RATES, Roc, picture
from tutelage.guarantee import attack_bound
from tutelage.privacy.errors import Unsealed
from tutelage.rounding import rounded_up

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Claim:
    """What is claimed: (ε, δ), and the μ of Gaussian DP where the whole release has one."""

    epsilon: float
    delta: float
    mu: float | None = None
    document: Mapping[str, Any] | None = None  # the guarantee it stands in

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Claim:
        """Read the claim of a guarantee."""
        epsilon = math.inf if document["epsilon"] == "infinity" else float(document["epsilon"])
        exact = bool(document["mu_is_exact"]) and math.isfinite(epsilon)
        return cls(epsilon, float(document["delta"]), float(document["mu"]) if exact else None, document)


@final
@dataclass(frozen=True, eq=False)
class Verdict:
    """Everything that one audit found."""

    claim: Claim | None
    bounds: tuple[Bound, ...]
    curves: Mapping[str, Roc]  # by attack; the first is the one that the bounds rest on
    game: Game | None = None
    queries: int = 0  # that the mechanism answers in the run; the game may play fewer
    unverified: str = ""  # why the release does not follow from its own ledger
    models: int = 0  # shadow models
    canaries: str = ""
    public_data: bool = False
    alarm: float = ALARM
    seconds: float = 0.0
    rows: Mapping[str, Array] = field(default_factory=dict)  # figures of single records

    @property
    def best(self) -> Bound | None:
        """Give the highest lower bound of the attacks."""
        return max(self.bounds, key=lambda bound: bound.epsilon, default=None)

    @property
    def findings(self) -> list[str]:
        """Say what breaks the claim, one sentence each."""
        found = []
        if self.unverified:
            found.append(f"The release does not verify: {self.unverified}")
        if self.game is not None and self.game.refuted:
            price = self.game.charged
            found.append(
                f"The mechanism leaks more than its ledger charged: ε ≥ {self.game.epsilon:.2f}, μ ≥ {self.game.mu:.2f} "
                f"where {self.game.queries} answers were charged as ε = {rounded_up(price.epsilon, 3)}"
                + (f", μ = {rounded_up(price.mu, 3)}." if price.mu is not None else ".")
            )
        if self.claim is None:
            return found
        stated = f"the claim is ε = {rounded_up(self.claim.epsilon, 3)}"
        stated += "" if self.claim.mu is None else f", μ = {rounded_up(self.claim.mu, 3)}"
        if self.game is not None and self._game_beyond():
            found.append(
                f"The mechanism leaks more than is claimed: ε ≥ {self.game.epsilon:.2f}, μ ≥ {self.game.mu:.2f} "
                f"by {self.game.queries} of {self.queries} answers; {stated}."
            )
        for bound in self.bounds:
            over = bound.mu > self.claim.mu if bound.mu is not None and self.claim.mu is not None else False
            if over or (bound.mu is None and bound.epsilon > self.claim.epsilon):
                measured = f"ε ≥ {bound.epsilon:.2f}" + ("" if bound.mu is None else f", μ ≥ {bound.mu:.2f}")
                found.append(f"The attack refutes the claim ({bound.method}): {measured}; {stated}.")
        return found

    def _game_beyond(self) -> bool:
        assert self.game is not None
        assert self.claim is not None
        mu = None if self.claim.mu is None else scaled(self.claim.mu, max(self.queries, 1), self.game.queries)
        return self.game.beyond(self.claim.epsilon, mu)

    @property
    def refuted(self) -> bool:
        """Tell whether anything breaks the claim."""
        return bool(self.findings)

    @property
    def line(self) -> str:
        """Say the result in one line."""
        if self.refuted:
            return f"REFUTED. {self.findings[0]}"
        parts = []
        if self.best is not None:
            parts.append(f"the attack's highest lower bound is ε ≥ {self.best.epsilon:.2f} ({self.best.method})")
        if self.game is not None:
            parts.append(f"the game's on the mechanism ε ≥ {self.game.epsilon:.2f}, μ ≥ {self.game.mu:.2f}")
        if self.claim is None:
            return f"No claim to compare with: {'; '.join(parts)}."
        return f"Not refuted: ε = {rounded_up(self.claim.epsilon, 3)} is claimed; {', '.join(parts) or 'nothing was measured'}."

    def document(self) -> dict[str, Any]:
        """Give every figure but those of single records."""
        game = None if self.game is None else {**vars(self.game), "charged": vars(self.game.charged)}
        claim = None if self.claim is None else {name: getattr(self.claim, name) for name in ("epsilon", "delta", "mu")}
        return _plain(
            {
                "refuted": self.refuted,
                "line": self.line,
                "findings": self.findings,
                "claim": claim,
                "confidence": 1 - self.alarm,
                "bounds": [vars(bound) for bound in self.bounds],
                "attacks": {name: roc.document() for name, roc in self.curves.items()},
                "game": game,
                "shadow_models": self.models,
                "canaries": self.canaries,
                "seconds": self.seconds,
            }
        )

    def ceiling(self, fpr: Array) -> Array:
        """Give the best true-positive rates that the claim lets any attack have."""
        assert self.claim is not None
        if self.claim.document is not None:
            return np.asarray(attack_bound(dict(self.claim.document), fpr))
        return np.minimum(1.0, math.exp(min(self.claim.epsilon, 700.0)) * fpr + self.claim.delta)

    def report(self) -> str:
        """Write one page: the result, bounds with their assumptions, the ROC on log axes, what was run."""
        import jinja2

        from tutelage.report.plots import svg

        curve = "" if not self.curves else svg(picture(dict(self.curves), self.ceiling if self.claim is not None else None))
        environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
        text = resources.files("tutelage.audits").joinpath("page.html.j2").read_text(encoding="utf-8")
        rates = {name: [roc.at(fpr) for fpr in RATES] for name, roc in self.curves.items()}
        return environment.from_string(text).render(verdict=self, curve=curve, rates=rates)

    def write(self, folder: Path) -> Path:
        """Write the page, the figures, and the rows of single records into a folder under private/; give the page's place."""
        if "private" not in folder.resolve().parts:
            raise Unsealed("`folder` must lie in a folder named 'private'. Got one outside instead.")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # made on the way to its shadow runs, it has the mode that the process gives
        _inside(folder / "audit.json", (json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n").encode())
        _inside(folder / "audit.html", self.report().encode())
        if self.rows:
            with os.fdopen(_opened(folder / "records.npz"), "wb") as file:
                np.savez_compressed(file, **{name: np.asarray(value) for name, value in self.rows.items()})
        return folder / "audit.html"


def _opened(path: Path) -> int:
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _inside(path: Path, content: bytes) -> None:
    with os.fdopen(_opened(path), "wb") as file:
        file.write(content)


def _plain(value: Any) -> Any:
    """Make plain data of NumPy's numbers, and texts of what JSON has no number for."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return "infinity" if isinstance(value, float) and math.isinf(value) else value
