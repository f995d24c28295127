"""A hospital's policy: one file that says what may leave, to whom, and how much may ever be learned.

It is read by code that the hospital installed, on the hospital's machine, before anything private is touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, final

from pydantic import Field

from tutelage.federation.certificates import checked_name, fingerprint, public_key
from tutelage.federation.study import Share, Terms, Whole, as_tuples, read_toml
from tutelage.privacy.budget import Budget
from tutelage.privacy.errors import HospitalRefused, RecipeError
from tutelage.privacy.units import Unit
from tutelage.recipes.sections import Count, Positive, Section, validated

_KEY = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@final
class Limit(Section):
    """Say how much may ever be learned about one unit, by all studies on this data together."""

    epsilon: Positive
    delta: Share


@final
class Limits(Section):
    """Hold both limits. Every answer is charged to both, or to none."""

    patient: Limit
    institution: Limit


@final
class Teachers(Section):
    """Say which models learn here, and among how many the patients are divided."""

    kind: str = "forest"  # a classifier's name, "unet" where targets are masks, or "class-moments", which trains nothing
    count: Count = 1
    seed: int = 0
    steps: Count = 300  # of a unet's training
    widths: tuple[Count, ...] = (8, 16)


@final
class Allowed(Section):
    """List what may be asked, and by whom."""

    studies_signed_by: tuple[str, ...]  # files with coordinators' public keys
    tasks: tuple[_KEY, ...]
    codecs: tuple[_KEY, ...]
    min_hospitals: Annotated[int, Field(ge=2)] = 2
    secure_sum: Literal["required", "optional"] = "required"
    tolerated_colluders: Whole = 0  # other hospitals that may pool what they know with the coordinator, in a secure sum
    known_hospitals: tuple[str, ...] = ()  # files with public keys; empty: any that the signed study names
    hospitals_per_patient: Count = 1  # how many hospitals may know one patient
    keep_days: Count = 30  # how long a given answer is kept, so that a repeated request is answered with the same bytes


@final
class Engine(Section):
    """Say where the coordinator is, and where this site's keys lie."""

    coordinator: str = "127.0.0.1:8000"
    certificates: str = "keys"
    port: Annotated[int, Field(ge=1, le=65535)] = 9094  # on loopback, for the engine's own processes
    insecure: bool = False


@final
class Policy(Section):
    """Hold a hospital's policy. Paths are relative to its file."""

    name: str
    data: str
    classes: Annotated[int, Field(ge=2, le=65535)]
    teachers: Teachers = Teachers()
    budget: Limits
    allow: Allowed
    engine: Engine = Engine()

    def budgets(self) -> dict[str, Budget]:
        """Give the budgets of both ledgers."""
        reach = {"patient": self.allow.hospitals_per_patient, "institution": self.teachers.count}
        limits = {"patient": self.budget.patient, "institution": self.budget.institution}
        return {name: Budget(one.epsilon, one.delta, Unit(name, reach[name])) for name, one in limits.items()}

    def check(self, terms: Terms, mine: str, folder: Path) -> None:
        """Refuse a study that this hospital's policy does not allow. Each refusal is one sentence for both sides."""
        allow = self.allow
        signers = [_read_key(folder / file) for file in allow.studies_signed_by]
        if terms.coordinator not in signers:
            raise HospitalRefused(
                f"a study must be signed by a key that {self.name} knows. Got {fingerprint(terms.coordinator)} instead."
            )
        if mine not in terms.roster or terms.hospitals[terms.roster.index(mine)].name != self.name:
            raise HospitalRefused(f"a study must name {self.name} with its own key. Got one that does not instead.")
        if len(terms.hospitals) < allow.min_hospitals or terms.threshold < allow.min_hospitals:
            raise HospitalRefused(
                f"at least {allow.min_hospitals} hospitals must answer where {self.name} takes part. "
                f"Got a study that goes on with {min(terms.threshold, len(terms.hospitals))} instead."
            )
        if allow.secure_sum == "required" and terms.trust != "nobody":
            raise HospitalRefused(f"{self.name} must be asked through a secure sum. Got trust in the coordinator instead.")
        if terms.trust == "nobody" and terms.colluders < allow.tolerated_colluders:
            raise HospitalRefused(
                f"a secure sum must bear {allow.tolerated_colluders} colluders where {self.name} takes part. "
                f"Got {terms.colluders} instead."
            )
        for what, key, known in (("task", terms.codec.task, allow.tasks), ("codec", terms.codec.key, allow.codecs)):
            if key not in known:
                raise HospitalRefused(f"the {what} of a study must be one that {self.name} allows. Got {key[:16]}… instead.")
        if getattr(terms.codec, "classes", self.classes) != self.classes:
            raise HospitalRefused(f"a study must have the {self.classes} classes of {self.name}. Got another number instead.")
        if terms.teachers != self.teachers.count:
            raise HospitalRefused(
                f"a study must count {self.teachers.count} teachers at {self.name}. Got {terms.teachers} instead."
            )
        if terms.promise.hospitals_per_patient < min(allow.hospitals_per_patient, len(terms.hospitals)):
            raise HospitalRefused(
                f"a study must count on patients whom {allow.hospitals_per_patient} hospitals know. "
                f"Got {terms.promise.hospitals_per_patient} instead."
            )
        if allow.known_hospitals:
            known_keys = {_read_key(folder / file) for file in allow.known_hospitals} | {mine}
            if strangers := [one.name for one in terms.hospitals if one.key not in known_keys]:
                raise HospitalRefused(f"every hospital of a study must be known to {self.name}. Got {strangers[0]!r} instead.")


def read_policy(path: Path) -> Policy:
    """Read a policy's file."""
    policy: Policy = validated(Policy, as_tuples(read_toml(path, "policy")))
    checked_name(policy.name)
    address = policy.engine.coordinator
    if policy.engine.insecure and address.rpartition(":")[0] not in ("127.0.0.1", "localhost", "[::1]"):
        raise RecipeError(
            f"`engine.insecure` must be left out unless the coordinator is on loopback. Got it with {address!r} instead."
        )
    return policy


def _read_key(path: Path) -> str:
    try:
        return public_key(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"`allow` must name readable files. Got «{error.strerror}» for {path.name!r} instead.") from None
