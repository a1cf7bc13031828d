//! The metrics of every step in TensorBoard's format, under the names that TRL's runs have there.

use std::time::SystemTime;

use serde_json::{Map, Value};
use tfrecord::protobuf::event::What;
use tfrecord::{Event, EventIter, EventMeta, RecordReaderConfig, RecordWriter, Summary};

/// Name of the event file; TensorBoard looks for `tfevents` in it.
pub(super) const EVENTS: &str = "events.out.tfevents.corver";

/// Returns the first event of a file.
pub(super) fn header() -> Vec<u8> {
    let version = Some(What::FileVersion("brain.Event:2".to_owned()));
    bytes([Event {
        what: version,
        ..EventMeta::new(0, wall_time(SystemTime::now())).build_empty()
    }])
}

/// Returns the events of a step: a scalar for each number of its metrics.
pub(super) fn step_events(metrics: &Map<String, Value>) -> Vec<u8> {
    let step = metrics.get("step").and_then(Value::as_f64).unwrap_or(0.0);
    let meta = EventMeta::new(step as i64, wall_time(SystemTime::now()));
    let mut events = Vec::new();
    for (name, value) in metrics {
        if name != "step"
            && let Some(value) = value.as_f64()
        {
            let summary = Summary::from_scalar(format!("train/{name}"), value as f32);
            events.push(meta.build_with_summary(summary.expect("it fits a float")));
        }
    }
    bytes(events)
}

/// Returns the length of the prefix of `file` with complete events of the first `steps_done` steps.
pub(super) fn length_until(steps_done: usize, file: &[u8]) -> usize {
    let mut rest = file;
    let mut length = 0;
    while let Some(Ok(event)) =
        EventIter::from_reader(&mut rest, RecordReaderConfig::default()).next()
    {
        if event.step > steps_done as i64 {
            break;
        }
        length = file.len() - rest.len();
    }
    length
}

/// Returns seconds since 1970, negative before it. The library's own clock panics there.
fn wall_time(now: SystemTime) -> f64 {
    match now.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

fn bytes(events: impl IntoIterator<Item = Event>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = RecordWriter::from_writer(&mut bytes).expect("memory can be written");
    events.into_iter().for_each(|event| writer.send(event).expect("memory can be written"));
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(number: usize) -> Vec<u8> {
        let metrics = json!({"step": number, "reward": 0.25 * number as f64, "kl": 2.0});
        step_events(metrics.as_object().unwrap())
    }

    #[test]
    fn step_metrics_become_tensorboard_scalars() {
        let file = [header(), step(1), step(2)].concat();
        let events: Vec<Event> = EventIter::from_reader(&file[..], RecordReaderConfig::default())
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(events[0].what, Some(What::FileVersion("brain.Event:2".into())));
        let scalars: Vec<(i64, String, String)> = events[1..]
            .iter()
            .map(|event| {
                let Some(What::Summary(summary)) = &event.what else { panic!("{event:?}") };
                let [value] = &summary.value[..] else { panic!("{event:?}") };
                (event.step, value.tag.clone(), format!("{:?}", value.value.as_ref().unwrap()))
            })
            .collect();
        let expected = [(1, "kl", 2.0), (1, "reward", 0.25), (2, "kl", 2.0), (2, "reward", 0.5)];
        let expected = expected.map(|(step, name, value)| {
            (step, format!("train/{name}"), format!("SimpleValue({value:?})"))
        });
        assert_eq!(scalars, expected);
    }

    #[test]
    fn wall_time_before_1970_is_negative() {
        let half_a_second = std::time::Duration::from_millis(500);
        assert_eq!(wall_time(SystemTime::UNIX_EPOCH + half_a_second), 0.5);
        assert_eq!(wall_time(SystemTime::UNIX_EPOCH - half_a_second), -0.5);
    }

    #[test]
    fn later_and_torn_events_are_cut_off() {
        let file = [header(), step(1), step(2), step(3)].concat();
        let until = |steps: usize| {
            [header()]
                .into_iter()
                .chain((1..=steps).map(step))
                .map(|part| part.len())
                .sum::<usize>()
        };
        assert_eq!(length_until(2, &file), until(2));
        assert_eq!(length_until(9, &file), file.len());
        assert_eq!(length_until(0, &file), header().len());
        let torn = length_until(9, &file[..file.len() - 3]);
        assert!((until(2)..file.len() - 3).contains(&torn));
        assert_eq!(length_until(9, b"no events"), 0);
    }
}
