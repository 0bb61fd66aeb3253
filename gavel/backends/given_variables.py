"""Which variables of a job the programs get that make ready what it brings: installers, and drivers of inputs."""

import os
import re
from collections.abc import Mapping

PROXIES = re.compile(r"(http|https|no|all)_proxy", re.IGNORECASE)
CERTIFICATES = r"SSL_CERT_\w+|REQUESTS_CA_BUNDLE"
INSTALLERS_READ = re.compile(
    rf"(PIP|UV|CONDA|CMAKE)_\w+|PATH|LANG|LD_LIBRARY_PATH|{CERTIFICATES}|CC|CXX|C\w*FLAGS|LDFLAGS|CUDA_HOME"
)
DRIVERS_READ = re.compile(  # no names of files but of certificates: what others say may make a driver run programs
    r"AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|(DEFAULT_)?REGION|ENDPOINT_URL(_S3)?)|HF_TOKEN"
    rf"|AZURE_(STORAGE_\w+|TENANT_ID|CLIENT_ID|CLIENT_SECRET)|{CERTIFICATES}"
)


def for_installers(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a job that its setup gets."""
    return {name: value for name, value in env.items() if INSTALLERS_READ.fullmatch(name) or PROXIES.fullmatch(name)}


def for_drivers(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a job that the fetch of its inputs gets, and the proxies of this process.

    A proxy of the job's would lead to hosts that the operator does not allow.
    """
    given = {name: value for name, value in env.items() if DRIVERS_READ.fullmatch(name)}
    return given | {name: value for name, value in os.environ.items() if PROXIES.fullmatch(name)}


def certificates_of(env: Mapping[str, str]) -> list[str]:
    """Return the files and folders of certificates that variables name."""
    named = [value for name, value in env.items() if re.fullmatch(CERTIFICATES, name)]
    return sorted({os.path.normpath(path) for path in named if path.startswith("/") and os.path.exists(path)})
