// A transactional producer that is replaced while its transaction is open, and wakes up: a zombie.
//
//   java -cp <Kafka's jars> Zombie.java BOOTSTRAP TOPIC TRANSACTIONAL_ID commit|write
//
// Prints what it is told when it goes on, a line for each step; its successor commits then a
// record of its own. Judges nothing.

import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Zombie {
    interface Step {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        var topic = arguments[1];
        try (var zombie = opened(arguments[0], arguments[2])) {
            zombie.beginTransaction();
            write(zombie, topic, "left open");
            try (var successor = opened(arguments[0], arguments[2])) {
                if (arguments[3].equals("write")) {
                    tell("write", () -> write(zombie, topic, "of a zombie"));
                }
                tell("commit", zombie::commitTransaction);
                tell("abort", zombie::abortTransaction);
                successor.beginTransaction();
                write(successor, topic, "of its successor");
                successor.commitTransaction();
            }
        }
    }

    static KafkaProducer<String, String> opened(String bootstrap, String transactionalId) {
        var producer =
                new KafkaProducer<String, String>(
                        Map.of("bootstrap.servers", bootstrap, "transactional.id", transactionalId),
                        new StringSerializer(),
                        new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    static void write(KafkaProducer<String, String> producer, String topic, String value)
            throws Exception {
        producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
    }

    static void tell(String name, Step step) {
        String told = "done";
        try {
            step.run();
        } catch (ExecutionException error) {
            told = error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            told = error.getClass().getSimpleName();
        }
        System.out.println(name + ": " + told);
    }
}
