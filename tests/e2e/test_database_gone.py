"""A service whose database file is deleted acknowledges nothing more, and says why."""

import json
import os
from pathlib import Path

import httpx
import pytest

from gavel.demo.service import wait_until
from tests.e2e.processes import LIMIT_S, Member

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


@pytest.mark.skipif(not IS_FULL, reason="a whole service: only with GAVEL_TEST_PROFILE=full; tests/store has the rest")
def test_a_service_without_its_file_refuses_until_it_is_started_on_another(tmp_path: Path) -> None:
    with Member(tmp_path / "state", {}) as member, member.client() as client:
        kept = client.submit(argv=["sleep", "1000"], total_steps=1)["id"]
        headers = {"Authorization": f"Bearer {(member.state_dir / 'operator.token').read_text().strip()}"}
        with httpx.Client(base_url=member.url, headers=headers, timeout=30) as http:
            assert wait_until(lambda: http.get("/readyz").status_code == 200, LIMIT_S)
            for path in member.state_dir.glob("gavel.db*"):
                if not path.name.endswith("-wake"):
                    path.unlink()
            program = {"argv": ["true"], "total_steps": 1}
            for answer in (http.post("/v1/jobs", json=program), http.get("/readyz"), http.get(f"/v1/jobs/{kept}")):
                assert answer.status_code == 503 and "deleted or replaced" in answer.json()["detail"]
        lines = [json.loads(line) for line in (member.state_dir / "service.log").read_text().splitlines()]
        assert [line["path"] for line in lines if line["event"] == "database.gone"]
        assert not list(member.state_dir.glob("gavel.db"))
