// Transactional producers that write to many partitions, with five requests each on their way.
//
//   java -cp <Kafka's jars> ManyPartitions.java BOOTSTRAP TOPIC ID PARTITIONS TRANSACTIONS RECORDS
//
// Each transaction has a producer of its own, all at once, and writes RECORDS small records in
// small batches to a growing number of partitions. Prints how many were committed. Judges nothing.

import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class ManyPartitions {
    static final String VALUE = "x".repeat(100);

    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[3]);
        int transactions = Integer.parseInt(arguments[4]);
        int records = Integer.parseInt(arguments[5]);
        var committed = new java.util.concurrent.atomic.AtomicInteger();
        var threads =
                IntStream.range(0, transactions)
                        .mapToObj(
                                number ->
                                        new Thread(
                                                () -> {
                                                    var id = arguments[2] + "-" + number;
                                                    try (var producer = opened(arguments[0], id)) {
                                                        write(producer, arguments[1], partitions, records);
                                                        committed.incrementAndGet();
                                                    } catch (Exception error) {
                                                        System.err.println(id + ": " + error);
                                                    }
                                                }))
                        .toList();
        threads.forEach(Thread::start);
        for (var thread : threads) {
            thread.join();
        }
        System.out.println("committed: " + committed + " of " + transactions);
    }

    static void write(
            KafkaProducer<String, String> producer, String topic, int partitions, int records) {
        producer.initTransactions();
        producer.beginTransaction();
        for (int record = 0; record < records; record++) {
            // A new partition now and then, among many writes to the first one.
            int partition = record % 20 == 0 ? record * partitions / records : 0;
            producer.send(new ProducerRecord<>(topic, partition, null, VALUE));
        }
        producer.commitTransaction();
    }

    static KafkaProducer<String, String> opened(String bootstrap, String transactionalId) {
        return new KafkaProducer<String, String>(
                Map.of(
                        "bootstrap.servers", bootstrap,
                        "transactional.id", transactionalId,
                        "max.in.flight.requests.per.connection", "5",
                        "batch.size", "500",
                        "linger.ms", "0"),
                new StringSerializer(),
                new StringSerializer());
    }
}
