"""Continuous batching with speculative decoding, simulated event by event (simpy).

Requests arrive, wait for a place, run in the batch until their answer is complete, and leave. In
every step the engine drafts for all running requests, a policy chooses how many drafts of each are
verified, one batch verifies them, and each request gets its accepted prefix and one token more.
What is accepted comes from measured rounds. Not modelled: prefill, limits of the cache, preemption,
and drafting while the batch before is still being verified. The engine does not know where an
answer ends, so the last round of a request may verify in vain.

Source: DSpark paper, sections 3.2.2 and 5.2 to 5.4 (what is scheduled, and what is reported).
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from engram_lab.draft.serving_batch import Batch, Request
from engram_lab.draft.serving_metrics import Served
from engram_lab.draft.serving_policies import Policy
from engram_lab.draft.serving_records import AcceptanceRecords

Curve = Callable[[int], float]


def free(requests: int) -> float:
    """A draft that costs nothing."""
    return 0.0


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What a step costs, and how many requests run at once.

    Attributes:
        verify_seconds: from tokens in the verification batch to seconds of the target's pass.
        draft_seconds: from running requests to seconds of drafting a block for each.
        max_running: requests that run at once; others wait.
    """

    verify_seconds: Curve
    draft_seconds: Curve = free
    max_running: int = 256

    def __post_init__(self):
        if self.max_running < 1:
            raise ValueError(f"Engine.max_running must be at least 1; got {self.max_running}")


@dataclass(frozen=True, kw_only=True)
class Load:
    """Who asks, and how long the simulation lasts. One of `users` and `rate_per_s` is given.

    Attributes:
        users: of a closed loop; each sends the next request when the last is answered.
        rate_per_s: arrivals per second of an open loop, a Poisson process.
        output_tokens: mean tokens of an answer.
        same_length: whether every answer has that length; else lengths are geometric.
        rounds: request-rounds that are counted.
        warmup: request-rounds before the first counted one.
    """

    users: int | None = None
    rate_per_s: float | None = None
    output_tokens: int = 256
    same_length: bool = False
    rounds: int = 20_000
    warmup: int = 2_000

    def __post_init__(self):
        if (self.users is None) == (self.rate_per_s is None):
            raise ValueError(
                "Load needs either users (a closed loop) or rate_per_s (an open one); got "
                f"{self.users} and {self.rate_per_s}"
            )
        given = self.users if self.users is not None else self.rate_per_s
        if not given > 0 or self.output_tokens < 1 or self.rounds < 1 or self.warmup < 0:
            raise ValueError(
                "Load needs positive users or rate_per_s, output_tokens and rounds, and a warmup "
                f"of 0 or more; got {given}, {self.output_tokens}, {self.rounds}, {self.warmup}"
            )


def simulate(
    records: AcceptanceRecords, policy: Policy, engine: Engine, load: Load, *, seed: int = 0
) -> Served:
    """Serve a load with one policy.

    Args:
        records: measured rounds; a request takes all of its own from one domain, which it has
            with the domain's share of the rounds.
        policy: chooses the lengths.
        engine: costs and places.
        load: who asks.
        seed: of arrivals, answers and draws of rounds.

    Raises:
        ImportError: if simpy is not installed.
        ValueError: if the policy gives lengths outside 0..block, or a cost is not a positive
            number.
    """
    simulation = _Simulation(records, policy, engine, load, seed)
    simulation.run()
    return simulation.served


class _Simulation:
    """State of one run: a process for the engine, and one for every user or for the arrivals."""

    def __init__(
        self, records: AcceptanceRecords, policy: Policy, engine: Engine, load: Load, seed: int
    ):
        self.policy, self.engine, self.load = policy, engine, load
        self.env = _simpy().Environment()
        self.people = np.random.default_rng([seed, 0])
        self.draws = np.random.default_rng([seed, 1])
        names, domain = np.unique(records.domain.astype(str), return_inverse=True)
        order = np.argsort(domain, kind="stable")
        self.rounds_of = np.bincount(domain, minlength=len(names))
        self.first = np.cumsum(self.rounds_of) - self.rounds_of
        self.share = np.cumsum(self.rounds_of) / len(domain)
        self.confidences, self.accepted = records.confidences[order], records.accepted[order]
        self.waiting: deque[Request] = deque()
        places = engine.max_running if load.users is None else min(engine.max_running, load.users)
        self.batch = Batch(places)
        self.served, self.began, self.seen, self.carried = Served(), 0.0, 0.0, 0
        self.costs: dict[tuple[int, int], tuple[float, float]] = {}
        self.wake, self.sent = self.env.event(), 0
        policy.begin()

    def run(self) -> None:
        if self.load.users is None:
            self.env.process(self._arrivals())
        for _ in range(self.load.users or 0):
            self.env.process(self._user())
        self.env.run(until=self.env.process(self._serve()))
        self._pass_time()
        self.served.seconds = self.env.now - self.began
        self.served.carried_tokens = self.batch.emitted - self.carried

    def _arrivals(self) -> Iterator[Any]:
        while True:
            yield self.env.timeout(self.people.exponential(1 / self.load.rate_per_s))
            self._send()

    def _user(self) -> Iterator[Any]:
        while True:
            yield self._send().done

    def _send(self) -> Request:
        mean = self.load.output_tokens
        tokens = mean if self.load.same_length else int(self.people.geometric(1 / mean))
        domain = int(np.searchsorted(self.share, self.people.random(), side="right"))
        request = Request(self.sent, self.env.now, tokens, domain, self.env.event())
        self.sent += 1
        self._pass_time()
        self.waiting.append(request)
        if not self.wake.triggered:
            self.wake.succeed()
        return request

    def _serve(self) -> Iterator[Any]:
        warm = self.load.warmup == 0
        while self.served.rounds < (self.load.rounds if warm else self.load.warmup):
            self._admit()
            if not len(self.batch):
                self.wake = self.env.event()
                yield self.wake
                continue
            lengths, accepted = self._propose()
            draft_s, verify_s = self._cost(len(lengths), len(lengths) + int(lengths.sum()))
            yield self.env.timeout(draft_s + verify_s)
            if self._emit(lengths, accepted, draft_s, verify_s):
                yield self.env.timeout(0)  # who has been answered asks again before the next step
            if not warm and self.served.rounds >= self.load.warmup:
                warm = True
                self._pass_time()
                self.served, self.began = Served(), self.env.now
                self.carried = self.batch.emitted

    def _admit(self) -> None:
        while self.waiting and len(self.batch) < self.batch.places:
            request = self.waiting.popleft()
            self.batch.add(request)
            self.served.admitted += 1
            self.served.wait_s += self.env.now - request.arrived

    def _propose(self) -> tuple[np.ndarray, np.ndarray]:
        """Drafts to verify, and of these accepted, of every running request."""
        count = len(self.batch)
        domain = self.batch.domain[:count]
        drawn = (self.draws.random(count) * self.rounds_of[domain]).astype(np.int64)
        drawn += self.first[domain]
        confidences, accepted = self.confidences[drawn], self.accepted[drawn]
        lengths = self.policy.lengths(confidences, accepted, self.batch.number[:count])
        return lengths, np.minimum(accepted, lengths)

    def _cost(self, requests: int, tokens: int) -> tuple[float, float]:
        """Seconds of drafting and of verification."""
        if (requests, tokens) not in self.costs:
            drafting = self.policy.drafts
            draft_s = float(self.engine.draft_seconds(requests)) if drafting else 0.0
            verify_s = float(self.engine.verify_seconds(tokens))
            if not (0 <= draft_s < math.inf and 0 < verify_s < math.inf):
                raise ValueError(
                    f"a step of {requests} requests and {tokens} tokens needs a positive time; "
                    f"got {draft_s} s of drafting and {verify_s} s of verification"
                )
            self.costs[requests, tokens] = draft_s, verify_s
        return self.costs[requests, tokens]

    def _emit(
        self, lengths: np.ndarray, accepted: np.ndarray, draft_s: float, verify_s: float
    ) -> bool:
        """Book a step that has ended; whether somebody has been answered."""
        self._pass_time()
        served, left = self.served, self.batch.left[: len(self.batch)]
        emitted = np.minimum(accepted + 1, left)
        left -= emitted
        served.steps += 1
        served.rounds += len(left)
        served.tokens += int(emitted.sum())
        served.verified += len(left) + int(lengths.sum())
        served.accepted += int(accepted.sum())
        served.busy_s += draft_s + verify_s
        served.draft_s += draft_s
        leavers = np.flatnonzero(left == 0)
        for place in leavers[::-1]:  # from the right, so that only staying requests move
            request = self.batch.remove(int(place))
            served.finished += 1
            served.finished_tokens += request.tokens
            request.done.succeed()
        return len(leavers) > 0

    def _pass_time(self) -> None:
        """Book the time since the last event for everybody in the system."""
        present = len(self.batch) + len(self.waiting)
        self.served.user_s += present * (self.env.now - self.seen)
        self.seen = self.env.now


def _simpy() -> ModuleType:
    try:
        import simpy
    except ImportError as error:
        raise ImportError(
            "simulate runs on the package simpy. Install it (pip install simpy), or the extra "
            "'serving' of engram-lab."
        ) from error
    return simpy
