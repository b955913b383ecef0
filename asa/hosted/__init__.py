"""Runs hosted by another workflow manager: it decides which stages run when; asa submits jobs ahead of time."""

from __future__ import annotations
