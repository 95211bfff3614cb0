"""What a serving simulation counts, and the measures that follow from the counts."""

from dataclasses import dataclass


@dataclass
class Served:
    """Counts between the warm-up and the end of a simulation.

    Attributes:
        steps: of the engine.
        rounds: request-rounds: requests that ran, summed over steps.
        tokens: emitted; what goes beyond the end of an answer is not counted.
        verified: tokens in the verification batches, anchors included.
        accepted: drafts accepted, those beyond the end of an answer included.
        seconds: on the clock.
        busy_s: seconds in steps.
        draft_s: seconds of these in drafting.
        user_s: seconds that requests were in the system, waiting or running, summed over requests.
        wait_s: seconds of waiting, summed over the requests that were let in.
        admitted: requests let in.
        finished: requests answered.
        finished_tokens: in the answers of these.
        carried_tokens: emitted so far for the requests that run at the end, less the same number
            at the start.
    """

    steps: int = 0
    rounds: int = 0
    tokens: int = 0
    verified: int = 0
    accepted: int = 0
    seconds: float = 0.0
    busy_s: float = 0.0
    draft_s: float = 0.0
    user_s: float = 0.0
    wait_s: float = 0.0
    admitted: int = 0
    finished: int = 0
    finished_tokens: int = 0
    carried_tokens: int = 0

    @property
    def verified_tokens(self) -> float:
        """Tokens verified for a request in a step, its anchor included: the published budget."""
        return self.verified / self.rounds

    @property
    def accepted_length(self) -> float:
        """Tokens a request gains in a step, the bonus token included."""
        return 1 + self.accepted / self.rounds

    @property
    def tokens_per_s(self) -> float:
        """Throughput: tokens emitted for all users in a second."""
        return self.tokens / self.seconds

    @property
    def tokens_per_s_user(self) -> float:
        """Speed that one user sees: tokens in a second of being in the system, waiting included."""
        return self.tokens / self.user_s

    @property
    def draft_share(self) -> float:
        """Share of the busy time that goes into drafting."""
        return self.draft_s / self.busy_s

    @property
    def mean_wait_s(self) -> float:
        """Seconds from arrival to the first step; 0 if nobody was let in meanwhile."""
        return self.wait_s / self.admitted if self.admitted else 0.0

    def row(self) -> dict[str, float]:
        """The measured columns of a serving frame.

        Returns:
            verified_tokens, tokens_per_s, tokens_per_s_user, accepted_length, draft_share,
            mean_wait_s, mean_running (requests in a step), busy_share (of the clock), and the
            counts rounds, tokens and finished.
        """
        names = ("verified_tokens", "tokens_per_s", "tokens_per_s_user", "accepted_length")
        return {name: getattr(self, name) for name in (*names, "draft_share", "mean_wait_s")} | {
            "mean_running": self.rounds / self.steps,
            "busy_share": self.busy_s / self.seconds,
            "rounds": self.rounds,
            "tokens": self.tokens,
            "finished": self.finished,
        }
