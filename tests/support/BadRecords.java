// A producer one batch of which holds good records and bad ones.
//
//   java -cp <Kafka's jars> BadRecords.java BOOTSTRAP COMPACTED_TOPIC
//
// Sends a record with a key, one without and one with, together, and prints the error of each.

import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

public class BadRecords {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config =
                Map.of("bootstrap.servers", arguments[0], "linger.ms", "60000", "acks", "all");
        var strings = new StringSerializer();
        try (var producer = new KafkaProducer<String, String>(config, strings, strings)) {
            var sent = new ArrayList<Future<RecordMetadata>>();
            for (String key : new String[] {"a", null, "b"}) {
                sent.add(producer.send(new ProducerRecord<>(arguments[1], 0, key, "value")));
            }
            producer.flush();
            for (var one : sent) {
                try {
                    one.get();
                    System.out.println("written");
                } catch (ExecutionException error) {
                    var cause = error.getCause();
                    System.out.println(cause.getClass().getSimpleName() + ": " + cause.getMessage());
                }
            }
        }
    }
}
