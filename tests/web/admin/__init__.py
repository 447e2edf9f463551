"""Tests of the console of administrators."""
