"""The output files of a job that goes on in another region: copied to where its program looks for them there.

They are copied as well as they can be: a job does not wait for ever for a place that cannot be read. The service shows
the files of all places anyway.
"""

import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import structlog

from gavel.backends.outputs import JobFile
from gavel.backends.several.output_places import OutputPlace, output_place
from gavel.types import JobId

log = structlog.get_logger("gavel.regions")

TRIES, PAUSE_S = 3, 1.0
EARLIER_S = 1e-3  # a copy in a folder has the time of its origin, as exactly as file systems keep it


class OutputCopies:
    """Brings output files to the places of regions: a folder or URL of each.

    `limit_bytes`: the most that a job may keep in one place; 0: any size.
    """

    def __init__(self, places: Mapping[str, str] = MappingProxyType({}), limit_bytes: int = 0) -> None:
        self._places, self._limit_bytes = places, limit_bytes

    @property
    def is_needed(self) -> bool:
        """Return whether regions keep output files in different places."""
        return len({*self._places.values()}) > 1

    def bring(self, job_id: JobId, region: str) -> None:
        """Have the newest of each of the job's files in the region, as far as places can be read and there is room.

        What is not copied is logged, and stays where it is.
        """
        for tries_left in reversed(range(TRIES)):
            problems = self._problems(job_id, region)
            if not problems:
                return
            if tries_left:
                time.sleep(PAUSE_S)
        log.warning("outputs.not_copied", job=job_id, region=region, error="; ".join(problems)[:1000])

    def _problems(self, job_id: JobId, region: str) -> list[str]:
        try:
            return [*self._tried(job_id, region)]
        except Exception as problem:  # of whichever storage this is
            return [f"{self._places[region]}: {problem}"]

    def _tried(self, job_id: JobId, region: str) -> Iterator[str]:
        """Copy what is not there yet; yield what went wrong."""
        target = output_place(self._places[region])
        newest: dict[str, tuple[JobFile, OutputPlace]] = {}
        for place in {*self._places.values()} - {self._places[region]}:
            try:
                _take_newer(newest, output_place(place), job_id)
            except Exception as problem:  # of whichever storage this is
                yield f"{place}: {problem}"
        if newest:
            yield from self._copied(job_id, region, newest, target)

    def _copied(
        self, job_id: JobId, region: str, newest: Mapping[str, tuple[JobFile, OutputPlace]], target: OutputPlace
    ) -> Iterator[str]:
        here = {file.path: file for file in target.listing(job_id).files}
        total = sum(file.size_bytes for file in here.values())
        count = 0
        for file, origin in _missing(newest, here):
            before = here[file.path].size_bytes if file.path in here else 0
            if self._limit_bytes and total - before + file.size_bytes > self._limit_bytes:
                log.warning("outputs.left_out", job=job_id, region=region, path=file.path, bytes=file.size_bytes)
                continue
            try:
                with origin.read(job_id, file.path) as source:
                    target.put(job_id, file, source)
            except Exception as problem:  # of whichever storage this is, or a link that the job has made there
                yield f"{file.path}: {problem}"
                continue
            total, count = total - before + file.size_bytes, count + 1
        log.info("outputs.copied", job=job_id, region=region, files=count)


def _take_newer(newest: dict[str, tuple[JobFile, OutputPlace]], place: OutputPlace, job_id: JobId) -> None:
    for file in place.listing(job_id).files:
        if file.path not in newest or newest[file.path][0].modified_at_s < file.modified_at_s:
            newest[file.path] = (file, place)


def _missing(
    newest: Mapping[str, tuple[JobFile, OutputPlace]], here: Mapping[str, JobFile]
) -> list[tuple[JobFile, OutputPlace]]:
    """Return what is to be copied: the files that are not here, or older here."""
    missing = [
        (file, place)
        for file, place in newest.values()
        if file.path not in here or here[file.path].modified_at_s < file.modified_at_s - EARLIER_S
    ]
    return sorted(missing, key=lambda each: -each[0].modified_at_s)
