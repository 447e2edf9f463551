"""Steps, for tests."""
