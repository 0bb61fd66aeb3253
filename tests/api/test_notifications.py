"""What users choose to be notified of, whom they may name, and what they see of what was sent."""

from collections.abc import Callable

import pytest

from tests.api.conftest import Service
from tests.api.test_metrics import samples

PROGRAM = {"argv": ["python", "train.py"], "total_steps": 100}
SETTINGS = "/v1/notification-settings"
CHANNELS = {
    "notification_webhook_url": "",
    "notification_hosts": "hooks.example.org chat.example.org",
    "notification_email_domains": "example.org",
    "smtp_host": "mail.example.org",
}


def test_a_choice_is_kept_and_says_by_what_the_user_is_reached(start: Callable[..., Service]) -> None:
    service = start(**CHANNELS)
    name, ann = service.user()
    assert ann.get(SETTINGS).json() == {"user": name, "occasions": [], "email": "", "webhook_url": "", "channels": []}
    body = {"occasions": ["end", "end", "no-progress"], "email": "ann@example.org"}
    chosen = {"user": name, "occasions": ["end", "no-progress"], "email": "ann@example.org", "webhook_url": ""}
    chosen |= {"channels": ["email"]}
    assert ann.put(SETTINGS, json=body).json() == ann.get(SETTINGS).json() == chosen
    assert service.operator().get(f"/v1/users/{name}/notification-settings").json() == chosen
    (entry, *_) = service.operator().get("/v1/audit", params={"user": name}).json()["items"]
    assert (entry["action"], entry["after"]["email"]) == ("notifications.changed", "ann@example.org")


@pytest.mark.parametrize(
    ("body", "field", "why"),
    [
        ({"webhook_url": "https://10.0.0.1/x"}, "webhook_url", "host 10.0.0.1 is not one of those"),
        ({"webhook_url": "https://hooks.example.org.evil.net/"}, "webhook_url", "is not one of those"),
        ({"webhook_url": "https://hooks.example.org@evil.net/"}, "webhook_url", "host evil.net is not one of those"),
        ({"webhook_url": "https://hooks.example.org:99999/"}, "webhook_url", "is no URL"),
        ({"webhook_url": "file:///etc/passwd"}, "webhook_url", "should match pattern"),
        ({"email": "ann@other.org"}, "email", "an operator can set any address"),
        ({"email": "ann@example.org\nBcc: all@example.org"}, "email", "should match pattern"),
        ({"occasions": ["start"]}, "occasions.0", "'end', 'failure' or 'no-progress'"),
        ({"occasions": ["end"]}, "occasions", "nothing can be sent to you"),
    ],
)
def test_an_address_that_a_user_may_not_name_is_refused_by_field(
    start: Callable[..., Service], body: dict[str, object], field: str, why: str
) -> None:
    refusal = start(**CHANNELS).user()[1].put(SETTINGS, json=body)
    assert refusal.status_code == 422, refusal.text
    assert why in refusal.text and field in refusal.text


def test_an_operator_sets_any_address_which_its_user_keeps_and_no_other_user_chooses(
    start: Callable[..., Service],
) -> None:
    service = start(**CHANNELS)
    name, ann = service.user()
    address = {"email": "ann@other.org"}
    assert service.operator().put(f"/v1/users/{name}/notification-settings", json=address).status_code == 200
    assert ann.put(SETTINGS, json=address | {"occasions": ["failure"]}).json()["channels"] == ["email"]
    bob = service.user()[1]
    assert bob.get(f"/v1/users/{name}/notification-settings").status_code == 403
    assert bob.put(f"/v1/users/{name}/notification-settings", json={}).status_code == 403
    assert service.operator().put("/v1/users/nobody/notification-settings", json={}).status_code == 404


def test_a_job_whose_user_nothing_can_be_sent_to_is_refused_with_what_to_do(start: Callable[..., Service]) -> None:
    service = start(**CHANNELS)
    _, ann = service.user()
    refusal = ann.post("/v1/jobs", json=PROGRAM | {"notify": ["failure"]})
    assert refusal.status_code == 422 and "gavel notification set --email" in refusal.json()["detail"]
    assert ann.post("/v1/jobs", json=PROGRAM | {"notify": []}).json()["notify"] == []
    ann.put(SETTINGS, json={"webhook_url": "https://chat.example.org/x"})
    old = ann.post("/v1/jobs", json=PROGRAM | {"notify": ["failure"]}).json()
    assert old["notify"] == ["failure"]
    assert ann.post(f"/v1/jobs/{old['id']}/resubmit", json={}).json()["notify"] == ["failure"]


def test_a_user_sees_the_own_notifications_an_operator_all_and_metrics_count_them(service: Service) -> None:
    (_, ann), (_, bob) = service.user(), service.user()
    (queued,) = ann.post("/v1/notifications/test").json()["items"]
    assert (queued["occasion"], queued["state"], queued["channel"]) == ("test", "waiting", "webhook")
    assert [each["id"] for each in ann.get("/v1/notifications").json()["items"]] == [queued["id"]]
    assert bob.get("/v1/notifications").json()["items"] == []
    waiting = service.operator().get("/v1/notifications", params={"state": "waiting"}).json()["items"]
    assert queued["id"] in [each["id"] for each in waiting]
    assert ann.get("/v1/notifications", params={"state": "delivered"}).json()["items"] == []
    assert samples(service)["gavel_notifications"]["webhook", "waiting"] >= 1
