"""Tests of several backends as one."""
