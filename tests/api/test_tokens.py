"""Bearer tokens are listed without what they open with, and taken back."""

from tests.api.conftest import Service


def test_a_token_is_taken_back_and_opens_nothing_from_then_on(service: Service) -> None:
    operator = service.operator()
    operator.put("/v1/users/fred", json={"tiers": ["gold"]})
    kept, lost = (operator.post("/v1/users/fred/tokens").json()["token"] for _ in range(2))
    fred = service.client(lost)
    assert fred.get("/v1/jobs").status_code == 200
    held = operator.get("/v1/users/fred/tokens")
    assert len(held.json()["items"]) == 2 and kept not in held.text and lost not in held.text
    opened: dict[str, int] = {}
    for each in held.json()["items"]:
        left = operator.delete(f"/v1/users/fred/tokens/{each['id']}")
        assert left.status_code == 200 and each["id"] not in left.text
        opened[each["id"]] = fred.get("/v1/jobs").status_code
    assert sorted(opened.values()) in ([200, 401], [401, 401]) and fred.get("/v1/jobs").status_code == 401
    assert service.client(kept).get("/v1/jobs").status_code == 401
    audit = operator.get("/v1/audit", params={"subject": "user/fred"}).json()["items"]
    assert [entry["action"] for entry in audit[:2]] == ["token.revoked", "token.revoked"]


def test_a_token_of_another_user_or_of_none_is_not_found(service: Service) -> None:
    operator = service.operator()
    for user in ("greta", "hugo"):
        operator.put(f"/v1/users/{user}", json={"tiers": ["gold"]})
    operator.post("/v1/users/greta/tokens")
    (held,) = operator.get("/v1/users/greta/tokens").json()["items"]
    assert operator.delete(f"/v1/users/hugo/tokens/{held['id']}").status_code == 404
    assert operator.delete("/v1/users/greta/tokens/0123456789abcdef").status_code == 404
    assert operator.delete("/v1/users/greta/tokens/xyz").status_code == 422
    assert operator.get("/v1/users/nobody/tokens").status_code == 404
    assert operator.get("/v1/users/hugo/tokens").json() == {"items": []}
