"""Tests of the couriers."""
