"""What a study asks, of whom and under which protection: fixed before a contribution is read, and named by its hash."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tutelage.data.dataset import Public
from tutelage.federation.certificates import checked_name, fingerprint, public_key
from tutelage.federation.codes import Codec, MomentCodec, VoteCodec
from tutelage.federation.envelope import key_of
from tutelage.federation.secure_sum import Quorum
from tutelage.privacy import accounting
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.budget import Budget
from tutelage.privacy.errors import DataError, RecipeError, TooFewHospitals
from tutelage.privacy.events import Event, NoisyMax, SummedGaussian
from tutelage.privacy.files import reading
from tutelage.privacy.mechanisms import GNMax, NoisyMean
from tutelage.privacy.units import Unit
from tutelage.recipes.sections import Count, Positive, Section, validated

VERSION = "tutelage-federation/1"
Array = npt.NDArray[Any]
UnitName = Literal["patient", "institution"]
NOTHING = np.zeros((1, 1))  # the public inputs of a study that asks for a statistic
Whole = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]


@final
class Hospital(Section):
    """Name a participant, and the public key of its node."""

    name: str
    key: str


@final
class Promise(Section):
    """Say what a study promises: (ε, δ) for one unit, and how far one unit's data can reach."""

    epsilon: Positive
    delta: Share
    unit: UnitName = "patient"
    hospitals_per_patient: Count = 1


@final
class Terms(Section):
    """Hold all that a site needs to know before it answers. Its hash is the study's name in every ledger."""

    version: str = VERSION
    name: str
    trust: Literal["coordinator", "nobody"]
    codec: Codec
    queries: Count
    public: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # hash of the inputs that are asked about
    teachers: Count  # at every hospital
    sigma: Positive  # of the noise on the sum
    promise: Promise
    threshold: Count
    colluders: Whole = 0
    coordinator: str  # public key
    hospitals: tuple[Hospital, ...]

    @property
    def key(self) -> str:
        """Name the study."""
        return key_of(self.plain())

    def plain(self) -> dict[str, Any]:
        """Write the terms as plain data."""
        return self.model_dump(mode="json")

    @classmethod
    def read(cls, plain: Any) -> Terms:
        """Read plain data, as strictly as a file."""
        if isinstance(plain, dict) and plain.get("version") != VERSION:
            raise RecipeError(
                f"`version` must be {VERSION!r} here. Got {plain.get('version')!r} instead: install one version everywhere."
            )
        given = as_tuples(plain) if isinstance(plain, dict) else plain
        terms: Terms = validated(cls, given)
        terms.check()
        return terms

    def check(self) -> None:
        """Refuse terms that do not fit together."""
        names, keys = [one.name for one in self.hospitals], [public_key(one.key) for one in self.hospitals]
        for name in names:
            checked_name(name)
        for what, some in (("names", names), ("keys", keys)):
            if len(set(some)) != len(some):
                raise RecipeError(f"`hospitals` must have different {what}. Got one twice instead.")
        if [one.key for one in self.hospitals] != keys or public_key(self.coordinator) != self.coordinator:
            raise RecipeError("public keys of a study must be written without comments. Got one with another form instead.")
        if isinstance(self.codec, MomentCodec) and self.queries != 1:
            raise RecipeError(f"`queries` must be 1 for a statistic. Got {self.queries} instead.")
        quorum = self.quorum
        if self.trust == "nobody":
            quorum.check_secure()
        if quorum.threshold < 2:
            raise TooFewHospitals(f"`threshold` must be at least 2 hospitals. Got {quorum.threshold} instead.")
        self.mechanism(Unit())

    def told(self) -> dict[str, Any]:
        """Describe the study for its guarantee: all of it is public."""
        return {
            "study": self.key,
            "trust": self.trust,
            "steps": [repr(self.mechanism(self.unit(self.promise.unit)))],
            "codec": repr(self.codec.build()),
            "queries": self.queries,
            "asked": self.public,
            "teachers": f"{self.teachers} at every hospital",
            "threshold": self.threshold,
            "colluders": self.colluders,
            "hospitals": [{"name": one.name, "key": fingerprint(one.key)} for one in self.hospitals],
            "coordinator": fingerprint(self.coordinator),
        }

    @property
    def quorum(self) -> Quorum:
        """Say how many take part, must answer, and may collude."""
        return Quorum(len(self.hospitals), self.threshold, self.colluders)

    @property
    def roster(self) -> list[str]:
        """List the hospitals' public keys, in order."""
        return [one.key for one in self.hospitals]

    # ── the mechanism, the same on both sides ─────────────────────────────────────────────────────────────────────────

    def unit(self, name: UnitName, *, hospitals_per_patient: int | None = None) -> Unit:
        """Say how many teachers one patient, or one hospital, reaches."""
        if name == "institution":
            return Unit(name, self.teachers)
        return Unit(name, min(hospitals_per_patient or self.promise.hospitals_per_patient, len(self.hospitals)))

    def mechanism(self, unit: Unit, *, places: int = 1) -> GNMax | NoisyMean:
        """Build what adds the noise. `places` is how many teachers' contributions a mean is divided by: it costs nothing."""
        if isinstance(self.codec, VoteCodec):
            return GNMax(self.codec.classes, self.sigma, unit)
        return NoisyMean(self.codec.build().bound, self.sigma, places, unit=unit)

    def event(self, unit: Unit) -> Event:
        """Say what one answer will have been for this unit, to those from whom the parts are hidden.

        With a secure sum the coordinator sees the whole noisy sum, to which every site added its part of the noise.
        """
        if self.trust == "coordinator":
            return self.mechanism(unit).event()
        if isinstance(self.codec, VoteCodec):
            sensitivity = OneHot(self.codec.classes).sensitivity(unit=unit)
        else:
            sensitivity = NoisyMean(self.codec.build().bound, self.sigma, 1, unit=unit).event().sensitivity
        return SummedGaussian(sensitivity, self.sigma, self.quorum.noise_parts)

    def sent(self, ballots: Array) -> Array:
        """Write contributions (teachers, queries, dimension) as they are sent to a trusted coordinator: clipped, and short."""
        if isinstance(self.codec, VoteCodec):
            return np.asarray(ballots.argmax(axis=-1).astype(np.uint8 if self.codec.classes <= 256 else np.uint16))
        return np.asarray(self.codec.build().bound.clip(ballots).astype(np.float32))

    def received(self, array: Array) -> Array:
        """Read contributions as they were sent. What is no number, or too long, is clipped again by the mechanism."""
        return (
            np.asarray(self.codec.build().encode(array)) if isinstance(self.codec, VoteCodec) else np.asarray(array, np.float64)
        )

    @property
    def sent_bytes(self) -> int:
        """Count the bytes of one teacher's contribution to one answer."""
        if isinstance(self.codec, VoteCodec):
            return 1 if self.codec.classes <= 256 else 2
        return 4 * self.codec.dimension

    @property
    def share(self) -> float:
        """Give the part of the noise's variance that every site adds, where nobody is trusted."""
        return 1 / self.quorum.noise_parts


# ── the file ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@final
class Student(Section):
    """Name what learns from the released answers."""

    learner: Literal["supervised", "spreading", "masks"] = "supervised"
    kind: str = "forest"
    seed: int = 0
    steps: Count = 300  # of a student of masks
    widths: tuple[Count, ...] = (8, 16)


@final
class Study(Section):
    """Read `study.toml`: what the coordinator wants, before keys and hashes are put in."""

    name: str
    trust: Literal["coordinator", "nobody"]
    public: str  # an .npz with `inputs`, maybe `targets`, and `test_inputs` with `test_targets`
    queries: Count
    teachers: Count
    threshold: Count
    colluders: Whole = 0
    seconds: Positive = 900.0  # that a message and its answer may take
    tuned_on: str = "not stated"
    codec: Codec
    promise: Promise
    student: Student = Student()
    hospitals: tuple[str, ...]  # files with public keys, named after their hospitals: NAME.pub
    coordinator: str = "coordinator.key"  # the file with the coordinator's own key
    address: str = "127.0.0.1:8000"  # of the engine's server
    certificates: str = "."
    insecure: bool = False  # without TLS, on loopback alone


def read_study(path: Path) -> Study:
    """Read a study's file."""
    study: Study = validated(Study, as_tuples(read_toml(path, "study")))
    loopback = study.address.rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]")
    if study.insecure and not loopback:
        raise RecipeError(
            f"`insecure` must be left out unless the address is on loopback. Got it with {study.address!r} instead."
        )
    return study


def as_tuples(plain: Any) -> Any:
    """Turn lists into tuples: a file has lists, frozen settings hold tuples."""
    if isinstance(plain, dict):
        return {name: as_tuples(value) for name, value in plain.items()}
    return tuple(as_tuples(value) for value in plain) if isinstance(plain, list) else plain


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file, or say in one sentence why not."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"`{what}` must be a readable TOML file. Got «{error.strerror}» for {path.name!r} instead.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise RecipeError(f"`{what}` must be valid TOML. Got other text in {path.name!r} instead.") from None


def read_public(path: Path) -> tuple[Public, Public | None]:
    """Read the public pool, and a public test set where there is one."""
    with reading(path, "public"), np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    if "inputs" not in arrays:
        raise DataError(f"`public` must hold an array `inputs`. Got none in {path.name!r} instead.")
    test = None
    if "test_inputs" in arrays:
        test = Public.of(arrays["test_inputs"], arrays.get("test_targets"), source="public test")
    return Public.of(arrays["inputs"], arrays.get("targets"), source="public pool"), test


def terms_of(study: Study, folder: Path, asked: Any, coordinator: str) -> Terms:
    """Put keys, hashes and the calibrated noise in: what every site will be shown."""
    hospitals = tuple(Hospital(name=checked_name(Path(file).stem), key=_public(folder / file)) for file in study.hospitals)
    draft = {
        "name": study.name, "trust": study.trust, "codec": study.codec, "queries": study.queries,
        "public": Public.of(asked).sha256, "teachers": study.teachers, "promise": study.promise, "threshold": study.threshold,
        "colluders": study.colluders, "coordinator": coordinator, "hospitals": hospitals,
    }  # fmt: skip
    terms = Terms(**draft, sigma=1.0)
    made, event = budget_of(terms), terms.event(terms.unit(study.promise.unit))
    length = OneHot(2).diameter() * made.unit.teachers if isinstance(event, NoisyMax) else event.sensitivity
    sigma = float(accounting.gaussian_sigma(length * math.sqrt(study.queries), made.epsilon, made.delta))
    # A little more than is needed: what rounding takes must not make the last question too dear.
    terms = Terms(**draft, sigma=sigma * (1 + 1e-6))
    terms.check()
    return terms


def budget_of(terms: Terms) -> Budget:
    """Give the budget that a study promises."""
    promise = terms.promise
    return Budget(promise.epsilon, promise.delta, terms.unit(promise.unit))


def _public(path: Path) -> str:
    try:
        return public_key(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"`hospitals` must name readable files. Got «{error.strerror}» for {path.name!r} instead.") from None


def described(terms: Terms) -> list[str]:
    """Say in plain sentences what a study asks: for a policy's owner, who decides."""
    promise, trust = terms.promise, terms.trust
    who = f"{'the coordinator' if trust == 'coordinator' else 'nobody'} sees one hospital's contributions"
    return [
        f"study «{terms.name}», key {terms.key[:16]}, signed by {fingerprint(terms.coordinator)}",
        f"asks {terms.teachers} local places {terms.queries:,} times: {terms.codec.meaning()}; {who}",
        f"noise N(0, {terms.sigma:g}²) on every number of the sum",
        f"{terms.threshold} of {len(terms.hospitals)} hospitals must answer, {terms.colluders} may collude with the coordinator",
        f"promises ε = {promise.epsilon:g} at δ = {promise.delta:g} for one {promise.unit}",
        f"codec key {terms.codec.key}",
        f"task key {terms.codec.task}",
    ]
