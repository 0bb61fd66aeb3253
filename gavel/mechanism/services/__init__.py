"""Decides which replicas an inference service has: which are made, which leave, and where they may be."""

from gavel.mechanism.services.spreading import spread
from gavel.mechanism.services.tending import tend_services

__all__ = ["spread", "tend_services"]
