"""The running requests of a serving simulation, side by side in arrays."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Request(NamedTuple):
    """One request.

    Attributes:
        number: of its arrival, from 0.
        arrived: seconds on the clock.
        tokens: of its answer.
        domain: number of the domain its rounds come from.
        done: event that is triggered when it has been answered.
    """

    number: int
    arrived: float
    tokens: int
    domain: int
    done: Any


@dataclass
class Batch:
    """Requests in the first places of the arrays; the last one takes the place of a leaver.

    Attributes:
        places: most requests.
        requests: those that run.
        number: of each, `[place]`.
        left: tokens each has still to get, `[place]`.
        domain: of each, `[place]`.
    """

    places: int
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self):
        self.number, self.left, self.domain = np.zeros((3, self.places), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.requests)

    def add(self, request: Request) -> None:
        """Give a request the next place."""
        place = len(self.requests)
        self.requests.append(request)
        self.number[place], self.left[place] = request.number, request.tokens
        self.domain[place] = request.domain

    def remove(self, place: int) -> Request:
        """Take a request out; the last one moves to its place.

        Args:
            place: its place.
        """
        last = len(self.requests) - 1
        for array in (self.number, self.left, self.domain):
            array[place] = array[last]
        gone, self.requests[place] = self.requests[place], self.requests[last]
        self.requests.pop()
        return gone

    @property
    def emitted(self) -> int:
        """Tokens that those who run have got so far."""
        return sum(request.tokens for request in self.requests) - int(self.left[: len(self)].sum())
