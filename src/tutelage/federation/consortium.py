"""Set a federation up: one folder for the coordinator, one to hand to each hospital. With generated data, to try it out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from tutelage.federation.certificates import Authority, SigningKey, checked_name, private_folder, write_private
from tutelage.federation.codes import VoteCodec
from tutelage.privacy.errors import RecipeError

LOOPBACK = ("localhost", "127.0.0.1")
_POLICY = """# What may leave {name}, to whom, and how much may ever be learned. Read docs/hospital/ before you change it.
name = "{name}"
data = "data"            # a folder with records.npz: inputs, targets, patients
classes = {classes}

[teachers]
kind = "{kind}"
count = {teachers}               # patients are divided among them

[budget.patient]         # by all studies on this data together
epsilon = {epsilon}
delta = {delta}

[budget.institution]     # the hospital as a whole: {teachers} teachers, so {teachers} times a patient's μ
epsilon = {institution}
delta = {delta}

[allow]
studies_signed_by = ["keys/coordinator.pub"]
tasks = ["{task}"]   # labels, released by gnmax
codecs = ["{codec}"]  # votes for {classes} classes
min_hospitals = {least}
secure_sum = "{secure}"
hospitals_per_patient = 1
keep_days = 30

[engine]
coordinator = "{address}"
certificates = "keys"
port = {port}
"""
_STUDY = """# What the coordinator asks. Every hospital's own policy and ledgers decide whether it answers.
name = "{name}"
trust = "{trust}"
public = "public.npz"    # inputs, targets (for scores alone), test_inputs, test_targets
queries = {queries}
teachers = {teachers}             # at every hospital
threshold = {threshold}            # hospitals that must answer, or nothing is released
colluders = {colluders}            # hospitals that may pool what they know with the coordinator
seconds = 300
tuned_on = "the digits set itself, which is public; a real study chooses these figures on public or simulated data"
hospitals = [{hospitals}]
coordinator = "coordinator.key"
address = "{address}"

[codec]
kind = "votes"
classes = {classes}

[promise]
epsilon = {epsilon}
delta = {delta}
unit = "patient"
hospitals_per_patient = 1

[student]
learner = "spreading"
kind = "kernel"
"""


def init(root: Path, hospitals: Sequence[str], *, port: int = 18080, hosts: Sequence[str] = LOOPBACK) -> None:
    """Make CA, certificates and keys: `ROOT/coordinator`, and `ROOT/NAME` for every hospital. Nothing is overwritten."""
    names = [checked_name(name) for name in hospitals]
    if len(set(names)) != len(names) or not names or "coordinator" in names:
        raise RecipeError("`hospitals` must have different names, none of them 'coordinator'. Got others instead.")
    private_folder(root)
    authority = Authority.new("tutelage")
    centre = private_folder(root / "coordinator")
    authority.write(centre)
    authority.issue(centre, list(hosts))
    coordinator = SigningKey.new()
    coordinator.write(centre, "coordinator")
    for name in names:
        keys = private_folder(private_folder(root / name) / "keys")
        write_private(keys / "ca.crt", authority.public())
        authority.issue(keys, LOOPBACK)  # for the engine's own processes on that machine
        node = SigningKey.new()
        node.write(keys)
        write_private(keys / "coordinator.pub", f"{coordinator.public}\n".encode())
        write_private(centre / f"{name}.pub", f"{node.public}\n".encode())


def furnish(
    root: Path,
    hospitals: Sequence[str],
    *,
    trust: Literal["coordinator", "nobody"] = "coordinator",
    teachers: int = 25,
    queries: int = 100,
    epsilon: float = 8.0,
    port: int = 18080,
    seed: int = 0,
) -> Path:
    """Write generated data, a policy for every hospital, and a study: scikit-learn's digits, divided by made-up patients."""
    from tutelage.data.digits import digits

    private, public, test = digits(seed=seed)
    assert test.targets is not None
    assert public.targets is not None
    sites, classes = len(hospitals), 10
    asked = VoteCodec(kind="votes", classes=classes)
    colluders, threshold = quorum(sites, trust)
    patients = np.arange(len(private)) // 2  # two images of each
    figures = {"classes": classes, "teachers": teachers, "epsilon": epsilon, "delta": 1e-5, "address": f"127.0.0.1:{port}"}
    kinds = ("kernel", "linear", "forest", "kernel") if teachers <= 5 else ("kernel",)
    for place, name in enumerate(hospitals):
        mine = patients % sites == place
        data = private_folder(root / name / "data")
        _save(
            data / "records.npz",
            inputs=private.inputs[mine],
            targets=private.targets[mine],
            patients=np.array([f"patient-{number}" for number in patients[mine]]),
        )
        policy = _POLICY.format(
            name=name, kind=kinds[place % len(kinds)], institution=epsilon * teachers * teachers, task=asked.task,
            codec=asked.key, least=min(threshold, sites), port=port + 1 + place,
            secure="required" if trust == "nobody" else "optional", **figures,
        )  # fmt: skip
        write_private(root / name / "policy.toml", policy.encode())
    centre = root / "coordinator"
    _save(
        centre / "public.npz",
        inputs=public.inputs, targets=public.targets, test_inputs=test.inputs, test_targets=test.targets,
    )  # fmt: skip
    study = _STUDY.format(
        name="digits", trust=trust, queries=queries, threshold=threshold, colluders=colluders,
        hospitals=", ".join(f'"{name}.pub"' for name in hospitals), **figures,
    )  # fmt: skip
    return write_private(centre / "study.toml", study.encode())


def quorum(sites: int, trust: str) -> tuple[int, int]:
    """Choose colluders and threshold: all but one must answer where that is safe."""
    from tutelage.federation.secure_sum import Quorum

    if trust == "coordinator":
        return 0, max(2, sites - 1)
    for colluders in (1, 0):
        for threshold in range(3, sites + 1):
            if Quorum(sites, threshold, colluders).secure and (threshold < sites or colluders == 0):
                return colluders, threshold
    raise RecipeError(f"`hospitals` must be at least 3 for a secure sum. Got {sites} instead.")


def _save(path: Path, **arrays: np.ndarray) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        np.savez_compressed(file, **arrays)
