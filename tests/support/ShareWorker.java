// A share consumer that says something else of each of four records.
//
//   java -cp <Kafka's jars> ShareWorker.java BOOTSTRAP GROUP TOPIC HOLD_MS
//
// Accepts offset 0, releases 1 the first time, rejects 2, and renews the lock of 3 until HOLD_MS have
// passed. Prints what it got and said, `OFFSET DELIVERY_COUNT TYPE`, and errors that commits bring.
// Ends when 1 and 3 were accepted. Judges nothing.

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ShareWorker {
    public static void main(String[] arguments) {
        long until = System.currentTimeMillis() + 40_000;
        long holdMs = Long.parseLong(arguments[3]);
        long heldSince = 0;
        Set<Long> accepted = new HashSet<>();
        Map<String, Object> config =
                Map.of(
                        "bootstrap.servers", arguments[0],
                        "group.id", arguments[1],
                        "share.acknowledgement.mode", "explicit");
        var read = new ByteArrayDeserializer();
        try (var consumer = new KafkaShareConsumer<>(config, read, read)) {
            consumer.subscribe(List.of(arguments[2]));
            while (!accepted.containsAll(Set.of(1L, 3L)) && System.currentTimeMillis() < until) {
                for (var record : consumer.poll(Duration.ofMillis(300))) {
                    if (record.offset() == 3 && heldSince == 0) {
                        heldSince = System.currentTimeMillis();
                    }
                    boolean mustHold = System.currentTimeMillis() < heldSince + holdMs;
                    var type = typeFor(record, mustHold);
                    consumer.acknowledge(record, type);
                    if (type == AcknowledgeType.ACCEPT) {
                        accepted.add(record.offset());
                    }
                    System.out.printf(
                            "%d %d %s%n", record.offset(), record.deliveryCount().get(), type);
                }
                consumer.commitSync()
                        .forEach((partition, error) -> error.ifPresent(System.out::println));
            }
        }
    }

    static AcknowledgeType typeFor(ConsumerRecord<byte[], byte[]> record, boolean mustHold) {
        if (record.offset() == 1 && record.deliveryCount().get() == 1) {
            return AcknowledgeType.RELEASE;
        }
        if (record.offset() == 2) {
            return AcknowledgeType.REJECT;
        }
        return record.offset() == 3 && mustHold ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT;
    }
}
