# DeleteTopics, versions 1-6.
#   Does:     removes topics by name or id, with their records and everyone's offsets in them;
#             durable when answered; works on a full disk.

from millstream.base.errors import MillstreamError
from millstream.broker.access.permit import TopicDenied
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


@handles(ApiKey.DELETE_TOPICS, versions=range(1, 7))
async def delete_topics(request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    doomed = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[await _delete(wanted, call) for wanted in doomed])


async def _delete(wanted: DeleteTopicState, call: Call) -> DeletableTopicResult:
    answer = DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id)
    try:
        topic = call.topics.find(wanted.name or "", wanted.topic_id)
        answer.name, answer.topic_id = topic.name, topic.id
        await call.topics.delete(topic)
    except TopicDenied as error:
        if call.permit.topics.shows(error.resource.name):
            answer.name = error.resource.name
        answer.error_code, answer.error_message = error_code(error), error_message(error)
    except MillstreamError as error:
        answer.error_code, answer.error_message = error_code(error), error_message(error)
    return answer
