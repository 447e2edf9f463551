"""Tests of the authoring tool."""
