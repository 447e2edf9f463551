"""The contract of the store: tests that every store must pass.

``make_store_tests`` and ``make_bounds_tests`` turn it into TestCases for one store, and
``machine`` has Hypothesis compare a store with a simple model of it.  They need nothing of the
store but ``Store``, and the table of topics, from which they read which topics wait.
"""

from tests.store_contract.accounts import make_account_store_tests
from tests.store_contract.administration import make_administration_tests
from tests.store_contract.bounds import make_bounds_tests
from tests.store_contract.checks import make_check_tests
from tests.store_contract.deliveries import make_store_tests
from tests.store_contract.kept import make_kept_tests
from tests.store_contract.shared import make_shared_work_tests
from tests.store_contract.suspects import make_suspect_tests

__all__ = [
    "make_account_store_tests",
    "make_administration_tests",
    "make_bounds_tests",
    "make_check_tests",
    "make_kept_tests",
    "make_shared_work_tests",
    "make_store_tests",
    "make_suspect_tests",
]
