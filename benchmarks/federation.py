"""What a study over hospitals costs: bytes per site, seconds per phase, and how both grow from 4 hospitals to 32.

python benchmarks/federation.py                 in one process: everything but the engine
python benchmarks/federation.py --wire          over the engine: separate processes, TLS, node authentication
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from result import write
from tutelage.federation.certificates import SigningKey
from tutelage.federation.consortium import furnish, init, quorum
from tutelage.federation.coordinator import Coordinator, Direct
from tutelage.federation.hospital import open_site
from tutelage.federation.secure_sum import Collector, Party, Quorum
from tutelage.federation.study import budget_of
from tutelage.federation.walk import prepare
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.queries import Query

QUERIES, TEACHERS = 100, 3
MASKS = (36, 3000)  # the hippocampus recipe's answers: 36 volumes, 3,000 frequencies


def names(count: int) -> list[str]:
    return [f"hospital-{number + 1}" for number in range(count)]


def in_process(sites: int, trust: Any) -> dict[str, Any]:
    """Ask so many hospitals once, without the engine."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "federation"
        init(root, names(sites))
        study = furnish(root, names(sites), trust=trust, teachers=TEACHERS, queries=QUERIES)
        for name in names(sites):
            policy = root / name / "policy.toml"
            text = policy.read_text(encoding="utf-8")
            policy.write_text(text.replace('kind = "forest"', 'kind = "linear"'), encoding="utf-8")
        handles = {place: open_site(root / name / "policy.toml").handle for place, name in enumerate(names(sites))}
        prepared = prepare(study)
        with Ledger(root / "study.sqlite", budget_of(prepared.terms)) as ledger:
            oracle = Coordinator(prepared.terms, prepared.key, Direct(handles), ledger)
            began = time.perf_counter()
            oracle.ask(Query.inputs(prepared.asked))
            whole = time.perf_counter() - began
        traffic = oracle.traffic
        return {
            "hospitals": sites,
            "trust": trust,
            "threshold": prepared.terms.threshold,
            "colluders": prepared.terms.colluders,
            "bytes from a hospital": {phase: round(size / sites) for phase, size in traffic.received.items()},
            "bytes to a hospital": {phase: round(size / sites) for phase, size in traffic.sent.items()},
            "seconds, all hospitals one after the other": {**traffic.seconds, "in all": round(whole, 3)},
        }


def secure_sum(sites: int, shape: tuple[int, ...]) -> dict[str, Any]:
    """Time the secure sum alone, on answers as large as masks' codes."""
    colluders, threshold = quorum(sites, "nobody")
    keys = [SigningKey.new() for _ in range(sites)]
    roster, numbers = [key.public for key in keys], Quorum(sites, threshold, colluders)
    values = np.random.default_rng(0).integers(-(2**40), 2**40, (sites, *shape))
    parties = [Party("benchmark", place, roster, numbers) for place in range(sites)]
    advertised = {place: party.advertise(keys[place]) for place, party in enumerate(parties)}
    began = time.perf_counter()
    shared = {place: party.share(advertised) for place, party in enumerate(parties)}
    sharing = (time.perf_counter() - began) / sites
    began = time.perf_counter()
    masked = {
        place: party.mask({other: shared[other][place] for other in range(sites) if other != place}, values[place])
        for place, party in enumerate(parties)
    }
    masking = (time.perf_counter() - began) / sites
    del masked[sites - 1]  # one vanishes: the dearest case for the coordinator
    given = {place: parties[place].unmask(sorted(masked)) for place in masked}
    began = time.perf_counter()
    total = Collector("benchmark", numbers, advertised).total(range(sites), masked, given)
    return {
        "hospitals": sites,
        "numbers": int(np.prod(shape)),
        "exact": bool(np.array_equal(total, values[:-1].sum(axis=0))),
        "seconds a site shares": round(sharing, 4),
        "seconds a site masks": round(masking, 4),
        "seconds the coordinator adds up, one site gone": round(time.perf_counter() - began, 4),
    }


def averaging() -> dict[str, Any]:
    """Count the bytes of one round of federated averaging, for the hippocampus recipe's student, beside one study of masks."""
    from tutelage.nets.unet import UNet

    parameters = sum(one.numel() for one in UNet(shape=(1, 32, 48, 32))().parameters())
    return {
        "parameters of the student": parameters,
        "bytes from a hospital, one round of averaging": 4 * parameters,
        "bytes from a hospital, a whole study through a secure sum": 8 * MASKS[0] * MASKS[1],
        "rounds of averaging that send as much": round(8 * MASKS[0] * MASKS[1] / (4 * parameters), 2),
    }


def over_the_wire(sites: int, trust: str, port: int) -> dict[str, Any]:
    """Carry a whole study out over the engine, and read its own account."""
    import json

    from tutelage.federation.trial import up

    with tempfile.TemporaryDirectory() as place:
        root, began, said = Path(place) / "federation", time.perf_counter(), {}

        def say(text: str) -> None:
            said[text] = round(time.perf_counter() - began, 1)

        finished = up(root, sites, trust=trust, teachers=25, queries=QUERIES, port=port, say=say)
        told = json.loads((root / "study" / "private" / "study.json").read_text(encoding="utf-8"))
        return {
            "hospitals": sites,
            "trust": trust,
            "answered": len(finished.answered),
            "seconds a phase": told["seconds"],
            "bytes received": told["received_bytes"],
            "bytes sent": told["sent_bytes"],
            "seconds in all": round(time.perf_counter() - began, 1),
            "scores": finished.scores,
            "epsilon": finished.guarantee["epsilon"],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wire", action="store_true")
    given = parser.parse_args()
    if given.wire:
        rows = [over_the_wire(2, "coordinator", 18080), over_the_wire(4, "nobody", 18100)]
        write("federation.wire", {"queries": QUERIES, "teachers of a hospital": 25, "studies": rows})
        return
    figures = {
        "queries": QUERIES,
        "teachers of a hospital": TEACHERS,
        "public inputs, bytes": QUERIES * 8 * 8 * 4,
        "studies": [in_process(sites, trust) for trust in ("coordinator", "nobody") for sites in (4, 8, 16, 32)],
        "beside federated averaging": averaging(),
        "secure sum of masks": [secure_sum(sites, MASKS) for sites in (4, 8, 16, 32)],
    }
    write("federation", figures)


if __name__ == "__main__":
    main()
