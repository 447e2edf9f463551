"""The contract of the store: tests that every store must pass.

Each module has a TestCase without a store.  A class with a method ``make_store`` beside it makes
the tests of one store of it.  ``machine`` has Hypothesis compare a store with a simple model of it.
The tests need nothing but the methods of the store, and the table of topics, from which they read
which topics wait.
"""
