from confluent_kafka import KafkaError

from millstream.queues.client_trouble import ClientTrouble, NoBroker, NoTls
from millstream.queues.login import LoginFailed

CONFIG = {"bootstrap.servers": "broker:9092", "sasl.username": "ada"}
REFUSED = "sasl_ssl://broker:9092/bootstrap: wrong user or password (after 5ms in state AUTH_REQ)"
UNREACHED = KafkaError(KafkaError._TRANSPORT, "no connection")


def trouble_with(*errors: KafkaError) -> ClientTrouble:
    trouble = ClientTrouble("mails", CONFIG)
    for error in errors:
        trouble.config["error_cb"](error)
    return trouble


def test_a_refused_login_is_told_without_librdkafka_s_frame_around_it() -> None:
    cause = trouble_with(KafkaError(KafkaError._AUTHENTICATION, REFUSED)).error_from(UNREACHED)
    assert isinstance(cause, LoginFailed)
    assert str(cause) == "the login of user ada failed: wrong user or password"


def test_that_all_brokers_are_down_does_not_hide_why() -> None:
    down = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    trouble = trouble_with(KafkaError(KafkaError._SSL, "unknown authority"), down)
    assert isinstance(trouble.cause(), NoTls)


def test_nobody_there_is_no_broker() -> None:
    assert isinstance(trouble_with(UNREACHED).error_from(UNREACHED), NoBroker)


def test_what_has_passed_is_not_told_later() -> None:
    trouble = trouble_with(KafkaError(KafkaError._AUTHENTICATION, REFUSED))
    trouble.passed()
    assert trouble.cause() is None


def test_what_a_broker_has_answered_is_not_about_reaching_it() -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert trouble_with().error_from(refused) is None


def test_an_application_s_own_callback_is_still_called() -> None:
    heard: list[KafkaError] = []
    trouble = ClientTrouble("mails", {**CONFIG, "error_cb": heard.append})
    trouble.config["error_cb"](UNREACHED)
    assert heard == [UNREACHED]
