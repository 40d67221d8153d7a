// A transactional producer that writes to many partitions, with five requests on their way.
//
//   java -cp <Kafka's jars> ManyPartitions.java BOOTSTRAP TOPIC ID PARTITIONS TRANSACTIONS RECORDS
//
// Each transaction writes RECORDS small records in small batches, to a growing number of
// partitions. Prints how many transactions were committed. Judges nothing.

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class ManyPartitions {
    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[3]);
        int transactions = Integer.parseInt(arguments[4]);
        int records = Integer.parseInt(arguments[5]);
        int committed = 0;
        for (int number = 0; number < transactions; number++) {
            try (var producer = opened(arguments[0], arguments[2] + "-" + number)) {
                producer.initTransactions();
                producer.beginTransaction();
                for (int record = 0; record < records; record++) {
                    // A new partition now and then, among writes to those that take part already.
                    int partition = record % (1 + record * partitions / records);
                    producer.send(new ProducerRecord<>(arguments[1], partition, null, "" + record));
                }
                producer.commitTransaction();
                committed++;
            } catch (Exception error) {
                System.err.println("transaction " + number + ": " + error);
            }
        }
        System.out.println("committed: " + committed + " of " + transactions);
    }

    static KafkaProducer<String, String> opened(String bootstrap, String transactionalId) {
        return new KafkaProducer<String, String>(
                Map.of(
                        "bootstrap.servers", bootstrap,
                        "transactional.id", transactionalId,
                        "max.in.flight.requests.per.connection", "5",
                        "batch.size", "100",
                        "linger.ms", "0"),
                new StringSerializer(),
                new StringSerializer());
    }
}
