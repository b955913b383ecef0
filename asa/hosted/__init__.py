"""Runs that another workflow manager hosts: it says what there is to do, and when; asa asks for it ahead of time."""

from __future__ import annotations
