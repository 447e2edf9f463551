"""Tests of the doctor: checks of an installed broker."""
