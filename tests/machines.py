"""Runs state machines of Hypothesis."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def run_machine(machine: Callable[[], RuleBasedStateMachine], limits: settings) -> None:
    """Run a state machine, which is made for each run.

    A failure names the calls that led to it, which Trial does not print where Hypothesis puts them.
    """
    try:
        run_state_machine_as_test(machine, settings=limits)  # type: ignore[arg-type] # it is only called
    except Exception as error:
        raise AssertionError("\n".join(getattr(error, "__notes__", ()))) from error
