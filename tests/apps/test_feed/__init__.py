"""Tests of the test feed."""
