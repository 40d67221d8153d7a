// An application of Kafka Streams: counts the words of a topic, each under a key of its own.
//
//   java -cp <jars of Kafka Streams>:<classes> CountByKey BOOTSTRAP APPLICATION STATE_DIR
//       INPUT OUTPUT [SETTING=VALUE...]
//
// A word is the value of a record. It becomes the key, so that the records go through a repartition
// topic, and is counted in a store with a changelog. Every count is written: 1, 2, 3 and so on.
// Prints its states, a line each, and stops in order when its input ends. Judges nothing.

import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public class CountByKey {
    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("group.protocol", "streams");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("auto.offset.reset", "earliest");
        for (int at = 5; at < arguments.length; at++) {
            var setting = arguments[at].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        var stopped = new CountDownLatch(1);
        try (var streams = started(settings, arguments[3], arguments[4], stopped)) {
            while (stopped.getCount() > 0 && System.in.read() >= 0) {}
            streams.close(Duration.ofSeconds(20));
        }
    }

    static KafkaStreams started(
            Properties settings, String input, String output, CountDownLatch stopped) {
        var builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
                .selectKey((key, word) -> word)
                .groupByKey(Grouped.with("by-word", Serdes.String(), Serdes.String()))
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(output, Produced.with(Serdes.String(), Serdes.String()));
        var streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(
                error -> {
                    System.out.println("failed " + error);
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
        streams.setStateListener(
                (now, before) -> {
                    System.out.println("state " + now);
                    if (now == KafkaStreams.State.ERROR) {
                        stopped.countDown();
                    }
                });
        streams.start();
        return streams;
    }
}
