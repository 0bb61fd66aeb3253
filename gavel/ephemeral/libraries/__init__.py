"""Scheduling policies as ephemeral resources (ESCHER, SoCC '22, section 5): one file each, and they compose."""

from gavel.ephemeral.libraries.anti_affinity import AntiAffinity
from gavel.ephemeral.libraries.barrier import Barrier
from gavel.ephemeral.libraries.bin_packing import BinPacking
from gavel.ephemeral.libraries.co_location import CoLocation
from gavel.ephemeral.libraries.composition import Composition, compose
from gavel.ephemeral.libraries.data_locality import DataLocality
from gavel.ephemeral.libraries.fair_sharing import FairSharing, Share
from gavel.ephemeral.libraries.gang import Gang, GangPool
from gavel.ephemeral.libraries.load_balancing import LoadBalancing, StaticLoadBalancing
from gavel.ephemeral.libraries.objective import Objective
from gavel.ephemeral.libraries.primitives import Alternative, Library, Primitives, Write
from gavel.ephemeral.libraries.priority import Priority, Queue
from gavel.ephemeral.libraries.soft import Soft

__all__ = [
    "Alternative",
    "AntiAffinity",
    "Barrier",
    "BinPacking",
    "CoLocation",
    "Composition",
    "DataLocality",
    "FairSharing",
    "Gang",
    "GangPool",
    "Library",
    "LoadBalancing",
    "Objective",
    "Primitives",
    "Priority",
    "Queue",
    "Share",
    "Soft",
    "StaticLoadBalancing",
    "Write",
    "compose",
]
