"""The uids that the jobs of users may run as: the setting `job_users`."""

FIRST_OF_PEOPLE = 1000
LAST = (1 << 31) - 1  # some programs keep a uid in a signed number
NOBODY = (65534, 65535)


def uids_of(setting: str) -> range:
    """Return the uids of `FIRST-LAST`, both included; none for "". Raises ValueError, a sentence for an operator."""
    if not setting:
        return range(0)
    first, dash, last = setting.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and setting.isascii()):
        raise ValueError(f"job_users is two uids, FIRST-LAST, such as 2000000-2065535, and not {setting!r}")
    uids = range(int(first), int(last) + 1)
    if not uids:
        raise ValueError(f"job_users = {setting} is empty: its first uid is above its last one")
    if uids.start < FIRST_OF_PEOPLE:
        raise ValueError(f"job_users = {setting} has uids of the system: 0 is root, and the first one may be 1000")
    if uids[-1] > LAST:
        raise ValueError(f"job_users = {setting} has uids above {LAST}, the largest one")
    if any(each in uids for each in NOBODY):
        raise ValueError(f"job_users = {setting} has the uids 65534 and 65535, which stand for nobody")
    return uids


def checked_uids(setting: str) -> str:
    """Return the setting as it is. Raises ValueError."""
    uids_of(setting)
    return setting
