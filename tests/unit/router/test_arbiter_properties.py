"""Whatever comes in whatever order, no request is lost, and none is in two hands."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Overloaded
from hailmesh.router.arbiter import Arbiter
from hailmesh.router.predictor import Predictor
from hailmesh.router.qos import Policy
from hailmesh.router.request import Request

BOUND, SLOTS = 3, 2
MS = 1_000_000


class ArbiterMachine(RuleBasedStateMachine):
    """Keeps its own account of who waits and who runs."""

    def __init__(self) -> None:
        super().__init__()
        self.arbiter = Arbiter(Predictor(), bound=BOUND)
        self.arbiter.add("u", "1", SLOTS)
        self.now = 0
        self.made = 0
        self.waiting: dict[str, Request] = {}
        self.running: dict[str, Request] = {}

    @rule(
        qos=st.sampled_from(["realtime", "interactive", "batch"]),
        deadline=st.sampled_from([None, 0.05, 0.4, 20.0]),
        size=st.sampled_from([10.0, 10_000.0]),
    )
    def submit(self, qos: str, deadline: float | None, size: float) -> None:
        terms = Policy().terms(qos, deadline)
        self.made += 1
        request = Request(
            str(self.made), "u", (), qos, terms.budgets, "", 1.0, self.now, terms.level, CancelToken(), size
        )
        try:
            displaced = self.arbiter.submit(request, self.now)
        except Overloaded as refusal:
            assert refusal.retry_after > 0
            return
        self.waiting[request.id] = request
        if displaced is not None:
            assert displaced.level < request.level
            assert self.waiting.pop(displaced.id) is displaced

    @rule()
    def grant(self) -> None:
        for request, _ in self.arbiter.expire(self.now):
            assert self.waiting.pop(request.id) is request
        granted = self.arbiter.grant(self.now)
        for request in granted:
            assert self.waiting.pop(request.id) is request
            assert request.deadline_ns > self.now
            self.running[request.id] = request
        if self.waiting:
            assert len(self.running) == SLOTS
            if granted:
                best = max(request.level for request in self.waiting.values())
                assert min(request.level for request in granted) >= best

    @precondition(lambda self: self.running)
    @rule(data=st.data(), learn=st.booleans())
    def finish(self, data: st.DataObject, learn: bool) -> None:
        request = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        assert self.arbiter.finish(request, self.now, learn=learn) >= 0

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request = self.waiting.pop(data.draw(st.sampled_from(sorted(self.waiting))))
        assert self.arbiter.cancel(request.id) is request
        assert self.arbiter.cancel(request.id) is None

    @rule(milliseconds=st.integers(0, 500))
    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds * MS

    @invariant()
    def the_accounts_agree(self) -> None:
        assert self.arbiter.waiting("u") == len(self.waiting) <= BOUND
        assert self.arbiter.running("u") == len(self.running) <= SLOTS
        due = self.arbiter.next_expiry()
        assert (due is None) == (not self.waiting)


ArbiterMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestArbiterKeepsItsAccounts = ArbiterMachine.TestCase
