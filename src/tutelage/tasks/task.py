"""What a transfer is about: labels or masks. Everything else is the same walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tutelage.asking import Model, Progress
from tutelage.data.dataset import Private, Public
from tutelage.privacy.curator import Curator
from tutelage.runs import RunFolder
from tutelage.telling import silent, telling

Students = Callable[[], Any]  # each call makes one that knows nothing yet
VOTING = "controls: teachers vote"


def trained(fit: Callable[..., Any], say: Progress) -> Callable[..., Any]:
    """Let a control's student tell how far it is."""
    return telling(fit, say, "training the controls")


def voting(vote: Callable[..., Any], say: Progress) -> Callable[..., Any]:
    """Let teachers that vote for a control tell how far they are."""
    return telling(vote, say, VOTING)


class Task(Protocol):
    """Ask the curator, and judge what a student made of the answers."""

    name: str  # "labels", "masks" or "corrections"

    @property
    def asked(self) -> str:
        """Describe what is asked, as far as that is known before the first answer: a hash, or a word."""

    @property
    def adaptive(self) -> bool:
        """Tell whether the price depends on what was answered, so that only the budget may be quoted."""

    def ask(self, curator: Curator, student: Students, folder: RunFolder, say: Progress) -> Any:
        """Hold the whole conversation and give the answers."""

    def account(self, curator: Curator, folder: RunFolder) -> float | None:
        """Leave the data-dependent ε under `private/`, and give its sanitised release where one was planned."""

    def lesson(self, answers: Any) -> Any:
        """Give what a student's `fit` takes beside the public pool."""

    def counts(self, answers: Any) -> dict[str, int]:
        """Count the answers, by whose they are."""

    def scores(self, model: Model, answers: Any, test: Public, student: Students, say: Progress = silent) -> dict[str, float]:
        """Score the student, and the controls that need no private data, on public test data."""

    def controls(
        self,
        teachers: Any,
        private: Private,
        answers: Any,
        test: Public,
        student: Students,
        folder: RunFolder,
        say: Progress = silent,
    ) -> None:
        """Score what only the owner of the data may know, and leave it under `private/`."""

    def publish(self, folder: RunFolder, model: Model, answers: Any) -> None:
        """Write the answers, and a few of them for the report to show."""

    def expose(self, folder: RunFolder) -> None:
        """Show stages without noise too, where the private data is public anyway."""
