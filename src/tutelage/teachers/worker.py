"""Train chunks of teachers for the process that started this one; it is spoken to over its pipes."""

from __future__ import annotations

import os
import pickle
import sys

import torch

from tutelage.teachers.engines import train_part


def main() -> None:
    """Read chunks until the pipe closes; answer ticks, then what was learned, or the error."""
    torch.set_num_threads(1)  # two threads beside a busy core spin
    orders = sys.stdin.buffer
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a network that prints must not write into the reply

    def reply(kind: str, value: object) -> None:
        pickle.dump((kind, value), replies)
        replies.flush()

    while True:
        try:
            job, part, numbers, stacked = pickle.load(orders)
        except EOFError:
            return
        try:
            reply("done", train_part(job, part, numbers, stacked, lambda count: reply("tick", count)))
        except Exception as error:
            reply("failed", error)


if __name__ == "__main__":
    main()
