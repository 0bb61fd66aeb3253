"""What the API is sent.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from gavel.client.bodies.autopilot import AutopilotPut
from gavel.client.bodies.jobs import (
    CancelBatch,
    CheckOfService,
    CodeFetch,
    CodeFile,
    CodeOfJob,
    CodeVersionPut,
    JobArraySubmit,
    JobBatchSubmit,
    JobPatch,
    JobResubmit,
    JobSubmit,
    PlanOfJob,
    ServiceOfJob,
    SessionExtend,
    VersionOfService,
)
from gavel.client.bodies.nodes import DrainRequest
from gavel.client.bodies.notifications import NotificationSettingsPut
from gavel.client.bodies.resources import Expected, ResourceBatch, ResourceItem, ResourcePut
from gavel.client.bodies.scheduling import PolicyPut
from gavel.client.bodies.tiers_and_users import SecretPut, TokenCreate, UserLinkPut, UserPut
from gavel.client.bodies.why_and_what_if import NodesAdded, TierPreview, TierPut, WhatIf

__all__ = [
    "AutopilotPut",
    "CancelBatch",
    "CheckOfService",
    "CodeFetch",
    "CodeFile",
    "CodeOfJob",
    "CodeVersionPut",
    "DrainRequest",
    "Expected",
    "JobArraySubmit",
    "JobBatchSubmit",
    "JobPatch",
    "JobResubmit",
    "JobSubmit",
    "NodesAdded",
    "NotificationSettingsPut",
    "PlanOfJob",
    "PolicyPut",
    "ResourceBatch",
    "ResourceItem",
    "ResourcePut",
    "SecretPut",
    "ServiceOfJob",
    "SessionExtend",
    "TierPreview",
    "TierPut",
    "TokenCreate",
    "UserLinkPut",
    "UserPut",
    "VersionOfService",
    "WhatIf",
]
