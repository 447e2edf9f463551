"""Tests of the application that stores feeds."""
