"""A study from its file to its release: ask the hospitals once, train the student on what was released, and say at what price."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage import publication
from tutelage.data.dataset import Public
from tutelage.federation.certificates import SigningKey
from tutelage.federation.codes import MaskCodec, MomentCodec, VoteCodec
from tutelage.federation.coordinator import Coordinator, Transport
from tutelage.federation.status import Status
from tutelage.federation.study import NOTHING, Study, Terms, budget_of, read_public, read_study, terms_of
from tutelage.planning import Aggregation
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.runs import RunFolder
from tutelage.sharing import ledger_of
from tutelage.tasks import table
from tutelage.tasks.task import Learning, Model, Plan

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Prepared:
    """Hold a study that was read, with everything public that it names."""

    study: Study
    terms: Terms
    key: SigningKey
    public: Public
    test: Public | None
    folder: Path

    @property
    def asked(self) -> Array:
        """Give the public inputs that are asked about: the first of the pool, or none for a statistic."""
        if isinstance(self.study.codec, MomentCodec):
            return NOTHING
        return np.ascontiguousarray(self.public.inputs[: self.study.queries])


@final
@dataclass(frozen=True)
class Finished:
    """Hold what a study gave."""

    model: Model
    folder: RunFolder
    guarantee: Mapping[str, Any]
    scores: dict[str, float]
    answered: list[str]
    remarks: list[str]


def prepare(path: Path) -> Prepared:
    """Read a study, its key and its public data; fix its terms."""
    folder, study = path.parent, read_study(path)
    public, test = read_public(folder / study.public)
    if len(public) < study.queries:
        raise DataError(f"`public` must hold at least the {study.queries} inputs that are asked. Got {len(public)} instead.")
    key = SigningKey.read(folder / study.coordinator)
    asked = NOTHING if isinstance(study.codec, MomentCodec) else np.ascontiguousarray(public.inputs[: study.queries])
    return Prepared(study, terms_of(study, folder, asked, key.public), key, public, test, folder)


def coordinate(
    prepared: Prepared,
    out: Path,
    transport: Transport,
    *,
    resume: bool = False,
    ledger: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Finished:
    """Carry a study out and publish `OUT/release`.

    Formal guarantee: everything under `OUT/release` is (ε, δ)-DP for the study's unit, towards everybody whom the study's trust
    names; each hospital's own ledgers hold it to the hospital's own budgets.
    """
    terms, folder = prepared.terms, RunFolder(out).create(resume=resume)
    facts = {"study": terms.name, "hospitals": len(terms.hospitals), "seconds": prepared.study.seconds}
    status = Status(folder.private, who="coordinator", **facts)

    def tell(text: str) -> None:
        status.write(text)
        say(text)

    with folder.locked(), ledger_of(folder, budget_of(terms), ledger) as book:
        if folder.state.get("run") not in (None, terms.key):
            raise RecipeError("`study` must be the one that this folder was begun with. Got one that was changed since instead.")
        task, students = _task(prepared), _student(prepared)
        learning = Learning(students, students(), folder)
        about = publication.begin(
            folder, book, terms.key, task=task.name, adaptive=task.adaptive, plan=_plan(prepared), shards=Coordinator.shards,
            tuned_on=prepared.study.tuned_on,
        )  # fmt: skip
        journal = folder.private / "rounds"
        oracle = Coordinator(terms, prepared.key, transport, book, seconds=prepared.study.seconds, say=tell, journal=journal)
        answers = task.ask(oracle, learning)
        tell("training the student")
        model = task.fit(answers, learning)
        model.save(folder.release / "student")
        task.publish(folder, model, answers)
        scores = {} if prepared.test is None else task.scores(model, answers, task.judged(prepared.test), learning)
        plain = {str(name): score for name, score in scores.items()}
        document = publication.publish(folder, book, about, scores=plain, counts=task.counts(answers))
        told = {"answered": oracle.answered, "remarks": oracle.remarks, **oracle.traffic.plain()}
        folder.write_inside(folder.private / "study.json", json.dumps({"terms": terms.plain(), **told}, indent=2) + "\n")
        tell("done")
    return Finished(model, folder, document, plain, oracle.answered, oracle.remarks)


def _task(prepared: Prepared) -> Any:
    """Open the task that the codec names."""
    terms = prepared.terms
    if isinstance(terms.codec, MomentCodec):
        raise RecipeError("`codec` must be one for labels or masks where a student learns. Got a statistic instead: ask for it.")
    name, method = ("labels", "gnmax") if isinstance(terms.codec, VoteCodec) else ("masks", "mean")
    return table.opened(name, Plan(prepared.public, terms.queries, terms.codec.build(), Aggregation(method)))


def _plan(prepared: Prepared) -> dict[str, Any]:
    """Describe the study in its guarantee. The ledger holds the hash."""
    return {**prepared.terms.told(), "pool": prepared.public.sha256, "student": repr(prepared.study.student)}


def _student(prepared: Prepared) -> Callable[[], Any]:
    section = prepared.study.student
    if (section.learner == "masks") is not isinstance(prepared.terms.codec, MaskCodec):
        raise RecipeError(
            f"`student.learner` must be 'masks' exactly where masks are asked for. Got {section.learner!r} instead."
        )
    if section.learner == "supervised":
        from tutelage.students.supervised import SupervisedStudent

        return lambda: SupervisedStudent(section.kind, seed=section.seed)
    if section.learner == "spreading":
        from tutelage.students.spreading import SpreadingStudent

        return lambda: SpreadingStudent(section.kind, seed=section.seed)
    import dataclasses

    from tutelage.nets.inputs import arranged
    from tutelage.nets.unet import UNet
    from tutelage.students.masks import TRAINING, MaskStudent

    network = UNet(shape=tuple(arranged(prepared.public.inputs[:1]).shape[1:]), widths=section.widths)
    training = dataclasses.replace(TRAINING, steps=section.steps, augmentation=None)
    return lambda: MaskStudent(network, training=training, device="cpu", seed=section.seed)


def over_the_wire(
    prepared: Prepared,
    out: Path,
    *,
    resume: bool = False,
    ledger: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Finished:
    """Carry a study out over the engine: start its server, let the study's hospitals in, and stop it afterwards."""
    from tutelage.federation import wire

    study, folder = prepared.study, (prepared.folder / "engine").resolve()
    certificates = (prepared.folder / study.certificates).resolve()
    keys = [(prepared.folder / file).resolve() for file in study.hospitals]
    with wire.served(folder, certificates, study.address, keys, insecure=study.insecure, say=say) as transport:
        return coordinate(prepared, out, transport, resume=resume, ledger=ledger, say=say)
