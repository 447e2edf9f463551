"""Which tests run when: each belongs to one of three runs.

- *quick*: units, which start no other program.  ``make quick`` runs only them.
- *usual*: all others that ``make test`` runs too: what starts processes, databases and a browser,
  one test for each promise of the manual.
- *longer*: what only ``make test-all`` runs, and continuous integration after ``make test``.
  These are the tests in `LONGER`.

``python -m tests.runs quick usual`` prints the names of the tests of these runs, a line for each,
those of whole programs first: they take longest, and so no process of a run is left with a slow
test at its end.  A new test belongs to the quick run if its module imports nothing of `PROGRAMS`,
and otherwise to the usual one; it belongs to the longer run if it is named here.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import TestSuite

from twisted.trial.runner import TestLoader

#: The directory of the tests.
TESTS = Path(__file__).parent

#: The runs, slowest tests first.
RUNS = ("longer", "usual", "quick")

#: Modules, classes and tests of the longer run.
LONGER = frozenset(
    {
        # Databases and name servers end, stand still or are behind a pooler; disks are full.
        "tests.e2e.test_cluster_faults",
        "tests.e2e.test_cut_off",
        "tests.e2e.test_database_faults",
        "tests.e2e.test_faults",
        "tests.e2e.test_pgbouncer",
        "tests.e2e.test_compose.ComposeTests.test_cluster",
        # Operations of many threads and processes on one database meet.
        "tests.storage.test_races",
        "tests.storage.test_upgrade.AtOnceTests",
        # Brokers, couriers and commands are killed again and again, or at every moment.
        "tests.commands.test_following.KilledTests",
        "tests.outbound.couriers.test_crew.DeathTests",
        "tests.outbound.couriers.test_fork_server",
        "tests.e2e.test_couriers",
        "tests.e2e.test_river_page.ReadingTests.test_a_broken_connection",
        "tests.e2e.test_kill",
        "tests.e2e.test_relay.OutageTests",
        # Documents, calls and programs that are out to break the broker.
        "tests.outbound.couriers.test_confinement.ConfinedCourierTests",
        "tests.outbound.couriers.test_confinement.ConfinementTests",
        "tests.outbound.couriers.test_hostile_documents",
        "tests.outbound.couriers.test_parsers.CostlyTests",
        "tests.e2e.test_hang_ups",
        # Thousands watch or wait for notifications, and hosts say nothing.
        "tests.delivery.test_backlogs",
        "tests.delivery.test_faults",
        "tests.delivery.test_speed",
        # Every page at every width, and with every payload in every form; every parameter.
        "tests.e2e.test_every_page",
        "tests.e2e.test_look_and_feel.LookUpTests",
        "tests.e2e.test_look_and_feel.TimesTests",
        "tests.e2e.test_every_parameter",
        "tests.e2e.test_xss.PayloadsTests",
        "tests.e2e.test_xss.ReflectedTests",
        "tests.e2e.test_xss.StoredTests",
        "tests.e2e.test_writing.KeyboardTests.test_too_long_a_message",
        "tests.e2e.test_writing.KeyboardTests.test_the_tab_keeps_what_the_broker_cannot",
        "tests.e2e.test_writing.KeyboardTests.test_a_picture_with_a_preview",
        "tests.e2e.test_river_page.MediaTests",
        "tests.e2e.test_river_page.ReadingTests.test_keys",
        "tests.e2e.test_river_page.ReadingTests.test_stopping_and_muting",
        "tests.e2e.test_river_page.StrangersTests",
        "tests.e2e.test_stories.TestFeedTests.test_link_that_the_broker_prints",
        # The same stories as in Chromium.
        "tests.e2e.test_firefox",
        # The same as usual tests do on SQLite in memory, and on PostgreSQL with threads.
        "tests.storage.test_store.ThreadedAdministrationTests",
        "tests.storage.test_store.ThreadedBoundsTests",
        "tests.storage.test_store.ThreadedKeptTests",
        "tests.storage.test_store.ThreadedStoreTests",
        # The same as usual tests do on another reactor.
        "tests.util.twisted_overrides.test_uvloop_reactor",
        # What is rare, and is tested without a process too.
        "tests.commands.test_following.FollowTests.test_command_that_fails",
        "tests.commands.test_following.FollowTests.test_command_that_reads_nothing",
        "tests.commands.test_following.FollowTests.test_reader_that_goes_away",
        "tests.e2e.test_private_river",
        "tests.e2e.test_writing.GuardTests",
        "tests.plugins.test_example_package.InstalledTests.test_adds_only_its_own_module",
        "tests.plugins.test_example_package.InstalledTests.test_packages_are_named",
        "tests.test_deployment.DockerfileTests.test_what_it_copies_makes_a_whole_package",
        "tests.test_site.SiteTests.test_the_release_itself",
        "tests.test_site.SiteTests.test_without_a_repository_of_its_own",
        "tests.e2e.test_reload.TerminalTests",
        "tests.e2e.test_river_page.ReadingTests.test_more_items_than_fit",
        # What the pages of the manual for one kind of reader say, beside the tour.
        "tests.test_docs.ExampleTests.test_change_lists",
        "tests.test_docs.ExampleTests.test_crawl",
        "tests.test_docs.ExampleTests.test_index",
        "tests.test_docs.ExampleTests.test_publish",
        "tests.test_docs.ExampleTests.test_read",
        "tests.test_docs.ExampleTests.test_websub",
        # Further programs that call the broker, beside one for each protocol.
        "tests.e2e.test_foreign_clients",
        "tests.e2e.test_behind_nginx.OtherProxyTests",
        "tests.e2e.test_behind_nginx.RecipeTests.test_publishers_and_crawlers",
        # Every row of the benchmarks, and what runs the tests.
        "tests.test_benchmarks",
        "tests.test_make.InstallingTests",
        "tests.test_mutants.MainTests",
        "tests.test_nursery",
    }
)

#: Modules and tests that start no program but take long: what every store must do, in any order of
#: operations, callers and hosts by the thousand, large documents, and what looks at all files.
#: They are no quick tests.
LONG = frozenset(
    {
        "tests.core.test_broker.PublishTests"
        ".test_names_of_one_source_that_nobody_can_look_up_delay_no_other",
        "tests.core.test_intents.AcceptTests.test_many_are_loaded_in_portions",
        "tests.policy.test_limiter.ShareTests",
        "tests.database.test_files",
        "tests.storage.test_exchange",
        "tests.storage.test_store",
        "tests.storage.test_store_machine",
        "tests.test_house",
        "tests.test_words",
        "tests.test_runs.RunsTests.test_each_test_belongs_to_one_run",
        "tests.core.test_polling.PollerTests.test_ended_topic_is_polled_no_more",
        "tests.core.test_polling.PollerTests.test_nobody_subscribes",
        "tests.delivery.test_carried.DistributionTests.test_everybody_gets_its_content_in_the_end",
        "tests.delivery.test_contents.PushedTests.test_what_does_not_fit_is_logged_and_counted",
        "tests.delivery.test_walk.FairnessTests"
        ".test_small_topic_is_told_though_more_large_ones_wait_than_are_walked",
        "tests.front_doors.test_rsscloud_rest.RefusalTests.test_as_many_topics_as_may_be",
        "tests.policy.test_rate_limits.VerificationTests"
        ".test_an_aggregator_renews_a_thousand_feeds_in_one_go",
        "tests.storage.test_durability",
        "tests.web.admin.test_openapi.DocumentTests.test_it_is_valid",
        "tests.apps.river.test_pushing.HubTests.test_endless_items_of_a_hub_do_not_fill_the_disk",
        "tests.apps.river.test_pushing.HubTests.test_pushes_wait_their_turn",
        "tests.core.test_polling_plan.SpreadTests.test_planning_costs_next_to_nothing",
        "tests.core.test_waiting_checks.WaitingChecksTests.test_a_source_has_half_of_what_there_is",
        "tests.model.test_disclosure.EveryPageTests.test_no_page_shows_more_than_the_mode_allows",
        "tests.policy.test_limiter.RoundTests.test_very_many_that_are_over_at_once",
        "tests.policy.test_rate_limits.FailureTests.test_memory_is_bounded",
        "tests.policy.test_rate_limits.PingTests.test_a_busy_blog_host_is_let_in",
        "tests.sinks.test_event_log.WritingTests"
        ".test_too_many_entries_are_lost_and_the_log_says_so_once",
        # Hours and days, one poll or archive after the other.
        "tests.apps.river.test_river.FollowingTests.test_the_subscription_is_renewed_for_ever",
        "tests.sinks.test_archive.ArchiveSinkTests"
        ".test_a_late_ping_of_an_old_hour_is_archived_before_it_is_pruned",
        "tests.sinks.test_archive.ArchiveSinkTests"
        ".test_an_hour_that_could_not_be_archived_is_tried_until_it_can",
        "tests.sinks.test_archive.ArchiveSinkTests"
        ".test_old_pings_are_pruned_though_the_wall_clock_was_wrong_for_a_while",
        # Random documents, and servers that say nothing.
        "tests.config.test_config.RefusalTests.test_deep_documents",
        "tests.front_doors.test_fuzz",
        "tests.wire.test_soap.FaultTests.test_references_that_multiply",
        "tests.client.test_feed_state.RenderTests.test_any_answer_can_be_told",
        "tests.client.test_strange_links",
        "tests.core.test_polling_plan.AlwaysTests",
        "tests.apps.hosting.test_calls.LargestFeedTests",
        "tests.apps.writing.test_markup",
        "tests.apps.writing.test_outline",
        "tests.apps.writing.test_texts",
        "tests.commands.doctor_checks.test_network",
        "tests.core.test_polling.PlacesTests",
        "tests.outbound.test_lean_connections.SessionTests.test_nothing_is_left_of_a_connection",
        "tests.outbound.test_resolver",
        "tests.policy.test_rate_limits.RateLimitTests.test_memory_is_bounded",
        "tests.sinks.test_relay",
        "tests.test_log_lines",
        "tests.test_runs.RunsTests.test_units_of_all_rooms",
        "tests.wire.test_feed.AttackTests.test_large_documents_of_one_thing",
    }
)

#: What takes longest, slowest first.
SLOW = (
    "tests.e2e.test_xss.StoredTests",
    "tests.e2e.test_cluster_faults",
    "tests.outbound.couriers.test_hostile_documents",
    "tests.e2e",
    *sorted(LONG),
)

#: What starts programs, or is a program of its own.
PROGRAMS = (
    "benchmarks",
    "multiprocessing",
    "subprocess",
    "tests.commands.cases",
    "tests.outbound.couriers.crashing",
    "tests.outbound.couriers.fixture",
    "tests.e2e",
    "tests.mutants",
    "tests.postgresql",
    "tests.processes",
    "tests.storage.databases.postgresql_database",
    "twisted.internet.utils",
)


def imports_of(path: Path) -> Iterator[str]:
    """The dotted name of everything that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def needs_programs(path: Path) -> bool:
    """Whether the tests of a module start programs."""
    return any(_is_in(name, PROGRAMS) for name in imports_of(path))


def quick_modules(tests: Path = TESTS) -> list[str]:
    """The names of the modules of quick tests in a directory of tests."""
    names = {
        ".".join(path.relative_to(tests.parent).with_suffix("").parts): path
        for path in tests.rglob("test_*.py")
        if not path.is_relative_to(tests / "e2e")
    }
    return sorted(
        name for name, path in names.items() if name not in LONG and not needs_programs(path)
    )


def runs(names: Sequence[str], modules: Collection[str]) -> dict[str, list[str]]:
    """Sort the tests of some packages or modules into the runs, as trial finds them.

    :param modules: those of quick tests.
    :returns: the names of tests by the name of their run.  A module that cannot be imported is
        among them under its own name, so that trial says why.
    """
    found: dict[str, list[str]] = {run: [] for run in RUNS}
    for test in _tests_of(TestLoader().loadByNames(list(names), recurse=True)):
        is_quick = _is_in(test, modules) and not _is_in(test, LONG)
        run = "longer" if _is_in(test, LONGER) else "quick" if is_quick else "usual"
        found[run].append(test)
    for tests in found.values():
        tests.sort(key=_place)
    return found


def _tests_of(suite: Iterable[Any]) -> Iterator[str]:
    for each in suite:
        yield from _tests_of(each) if isinstance(each, TestSuite) else (each.id(),)


def _place(test: str) -> int:
    """Among the slowest tests, or after all of them."""
    return next((place for place, slow in enumerate(SLOW) if _is_in(test, [slow])), len(SLOW))


def _is_in(name: str, those: Iterable[str]) -> bool:
    """Whether a dotted name is among some, or in one of them."""
    return any(f"{name}.".startswith(f"{one}.") for one in those)


if __name__ == "__main__":
    units = quick_modules()
    # To import the other tests takes a second, which the quick run alone can do without.
    found = runs(units if sys.argv[1:] == ["quick"] else ["tests"], units)
    sys.stdout.writelines(f"{test}\n" for run in RUNS if run in sys.argv[1:] for test in found[run])
