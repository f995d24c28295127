"""What the page says in words: the statement, the events and their number, and what is not private."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markupsafe import Markup

_ANSWERS = {"NoisyMax", "Gaussian", "SummedGaussian", "Laplace"}  # kinds of events that are one answer each
_EVENTS = {
    "Gaussian": "numbers were released with normal noise of deviation `sigma` on each. One {unit} moves all of them together by "
    "`sensitivity` at most (Euclidean length).",
    "Laplace": "numbers were released with Laplace noise of scale `scale` on each. One {unit} moves all of them together by "
    "`sensitivity` at most (sum of the changes).",
    "NoisyMax": "noise was added to every count of votes, and only the name of the highest count was released. `scale` is the "
    "size of the noise, in votes; `votes` is how many votes one {unit} can change.",
    "Threshold": "it was released whether the highest count of votes, with normal noise of deviation `sigma`, reaches a public "
    "threshold. `votes` is how many votes one {unit} can move it by.",
    "SparseVector": "the places of up to `answers` numbers above a threshold were released, not the numbers. The two ε are the "
    "prices of the noise on the threshold and on the comparisons with it.",
    "SmoothRelease": "one number was released with normal noise, `sigma` times as large as the number's smooth sensitivity, "
    "which `beta` smooths.",
    "SummedGaussian": "parties that trust nobody each added a part of the noise to one sum, and only the sum was seen.",
    "Reserved": "all rounds of a conversation, each on a secret part of the data, were paid for together before the first.",
    "Sampled": "the event inside ran on a secret part of the data, drawn anew each time. `rate` is the share that is drawn.",
    "NonPrivate": "somebody looked at a private value without noise. No ε holds from there on.",
}


def coded(text: str) -> Markup:
    """Escape a text for the page, and set as code what stands between backticks."""
    from markupsafe import Markup

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text)))


def statement(g: dict[str, Any]) -> str:
    """Explain the addend and the neighbours of the statement; nothing is left to explain where there is no guarantee."""
    if g["epsilon"] == "infinity":
        return ""
    unit = g["unit"]
    alike = f"two data sets in which all data of one {unit} may differ, or be absent"
    lacking = f"two data sets, of which one holds all that the other holds and one {unit} more"
    pair = alike if g["adjacency"] == "replace-one" else lacking
    chance = f", about one chance in {round(1 / g['delta']):,}" if 0 < g["delta"] <= 0.5 else ""
    return (
        f"The addend is δ: an outcome may be that much likelier than the factor allows{chance}. "
        f"The sentence holds for any two neighbours ({g['adjacency']}): {pair}."
    )


def events(g: dict[str, Any]) -> list[tuple[str, str]]:
    """Explain every kind of event that occurs, once."""
    kinds = dict.fromkeys(event["kind"] for event in g["events"])
    return [(kind, _EVENTS[kind].format(unit=g["unit"])) for kind in kinds]


def counts(g: dict[str, Any], charges: int) -> str:
    """Say why there are fewer charges than events, and fewer events than answers."""
    paid, answered, said = sum(event["count"] for event in g["events"]), g["labels"]["released"], []
    if {event["kind"] for event in g["events"]} <= _ANSWERS and 0 < paid < answered:
        said.append(
            f"{answered:,} answers and {paid:,} events: a record that is in the pool more than once is asked about once, "
            "and the same answer given again costs nothing."
        )
    if charges < paid:
        said.append(f"{paid:,} events in {charges:,} charges: one charge pays for all questions that are asked together.")
    return " ".join(said)


def behind(g: dict[str, Any], *, inside: bool) -> str:
    """Say why figures without noise may be on this page."""
    began = "Figures and pictures called private were computed from private data without noise"
    if inside:
        return f"{began}: they stay inside, as this page does."
    data = g.get("data")
    if not (data and data["published"]):
        return f"{began}, and ε does not cover them. They are shown because these data were declared to be public anyway."
    return (
        f"{began}, and ε does not cover them. They may be shown because the private data of this run, “{data['set']}”, "
        "are public anyway: drawn by the package, or there for anybody to download."
    )
