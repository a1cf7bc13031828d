//! The written graph computes what a decoder computes: whole sequences, with a past, and with padding at the left.

mod reference;

use std::collections::HashMap;
use std::sync::Mutex;

use corver_extract::RuntimeLibrary;
use corver_extract::onnx::{DecoderShape, OnnxError, encode_decoder};
use ort::environment::Environment;
use ort::session::Session;
use ort::value::{DynValue, Tensor};

use reference::Decoder;

const VOCAB: usize = 37;
const LAYERS: usize = 2;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 8;

fn shape(num_heads: usize, tie_embeddings: bool) -> DecoderShape {
    DecoderShape {
        vocab_size: VOCAB,
        hidden_size: 12,
        intermediate_size: 40,
        num_layers: LAYERS,
        num_heads,
        num_kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        tie_embeddings,
    }
}

fn encode(decoder: &Decoder) -> Result<Vec<u8>, OnnxError> {
    encode_decoder(&decoder.shape, &mut |name| Ok(decoder.weights.get(name).cloned()))
}

/// One ONNX Runtime per process, whatever thread a test runs in.
fn session(decoder: &Decoder) -> Session {
    static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);
    let mut environment = ENVIRONMENT.lock().unwrap();
    let environment = environment.get_or_insert_with(|| {
        let library = RuntimeLibrary::find(None).unwrap();
        ort::init_from(library.path()).unwrap().with_telemetry(false).build().unwrap()
    });
    Session::builder(environment).unwrap().commit_from_memory(&encode(decoder).unwrap()).unwrap()
}

/// `rows` of tokens, `None` for padding; returns logits `[B][T][V]` and the present keys and values.
fn run(
    session: &mut Session,
    rows: &[Vec<Option<i64>>],
    first_position: i64,
    past: Option<Vec<DynValue>>,
) -> (Vec<Vec<Vec<f32>>>, Vec<DynValue>) {
    let (batch, width) = (rows.len(), rows[0].len());
    let num_past = past.as_ref().map_or(0, |past| past[0].dtype().tensor_shape().unwrap()[2] as usize);
    let ids: Vec<i64> = rows.iter().flatten().map(|id| id.unwrap_or(0)).collect();
    let mask = rows
        .iter()
        .flat_map(|row| std::iter::repeat_n(1, num_past).chain(row.iter().map(|id| i64::from(id.is_some()))));
    let mask: Vec<i64> = mask.collect();
    let positions = rows.iter().flat_map(|row| {
        let pads = row.iter().filter(|id| id.is_none()).count() as i64;
        (0..width as i64).map(move |column| (column - pads).max(0) + first_position)
    });
    let positions: Vec<i64> = positions.collect();
    let mut inputs: HashMap<String, DynValue> = HashMap::new();
    let mut ints = |name: &str, width: usize, data: Vec<i64>| {
        inputs.insert(name.to_owned(), Tensor::from_array(([batch, width], data)).unwrap().into_dyn());
    };
    ints("input_ids", width, ids);
    ints("attention_mask", num_past + width, mask);
    ints("position_ids", width, positions);
    let past = past.unwrap_or_else(|| {
        let allocator = ort::memory::Allocator::default();
        let empty = || Tensor::<f32>::new(&allocator, [batch, KV_HEADS, 0, HEAD_DIM]).unwrap().into_dyn();
        (0..2 * LAYERS).map(|_| empty()).collect()
    });
    let parts = (0..LAYERS).flat_map(|n| [format!("{n}.key"), format!("{n}.value")]);
    for (part, value) in parts.clone().zip(past) {
        inputs.insert(format!("past_key_values.{part}"), value);
    }
    let mut outputs = session.run(inputs).unwrap();
    let present: Vec<DynValue> = parts.map(|part| outputs.remove(format!("present.{part}")).unwrap()).collect();
    let (shape, data) = outputs["logits"].try_extract_tensor::<f32>().unwrap();
    assert_eq!(shape.to_vec(), [batch as i64, width as i64, VOCAB as i64]);
    let logits = data.chunks(width * VOCAB).map(|row| row.chunks(VOCAB).map(<[f32]>::to_vec).collect()).collect();
    (logits, present)
}

fn assert_close(got: &[Vec<f32>], expected: &[Vec<f64>]) {
    assert_eq!(got.len(), expected.len());
    let scale = expected.iter().flatten().fold(0.0, |max: f64, x| max.max(x.abs()));
    assert!(scale > 0.5, "the logits are too flat to tell anything: {scale}");
    for (got, expected) in got.iter().flatten().zip(expected.iter().flatten()) {
        assert!((f64::from(*got) - expected).abs() < 1e-4, "{got} {expected}");
    }
}

const LONG: [i64; 9] = [3, 14, 15, 9, 26, 5, 35, 8, 9];
const SHORT: [i64; 4] = [2, 7, 18, 28];

fn some(tokens: &[i64]) -> Vec<Option<i64>> {
    tokens.iter().copied().map(Some).collect()
}

#[test]
fn whole_sequences() {
    for (num_heads, tied) in [(2, true), (4, false), (6, true)] {
        let decoder = Decoder::new(shape(num_heads, tied));
        let (logits, present) = run(&mut session(&decoder), &[some(&LONG)], 0, None);
        assert_close(&logits[0], &decoder.logits(&LONG));
        assert_eq!(present[0].dtype().tensor_shape().unwrap().to_vec(), [1, 2, 9, 8]);
    }
}

#[test]
fn with_a_past() {
    let decoder = Decoder::new(shape(4, true));
    let mut session = session(&decoder);
    let (_, past) = run(&mut session, &[some(&LONG[..5])], 0, None);
    let (logits, past) = run(&mut session, &[some(&LONG[5..8])], 5, Some(past));
    let whole = decoder.logits(&LONG);
    assert_close(&logits[0], &whole[5..8]);
    let (logits, _) = run(&mut session, &[some(&LONG[8..])], 8, Some(past));
    assert_close(&logits[0], &whole[8..]);
}

#[test]
fn padding_at_the_left() {
    let decoder = Decoder::new(shape(4, true));
    let pads = LONG.len() - SHORT.len();
    let padded = [vec![None; pads], some(&SHORT)].concat();
    let (logits, _) = run(&mut session(&decoder), &[padded, some(&LONG)], 0, None);
    assert_close(&logits[0][pads..], &decoder.logits(&SHORT));
    assert_close(&logits[1], &decoder.logits(&LONG));
    assert!(logits.iter().flatten().flatten().all(|x| x.is_finite()), "even where there is only padding");
}

#[test]
fn weights_that_do_not_fit_are_named() {
    let mut decoder = Decoder::new(shape(4, true));
    let bias = "model.layers.0.self_attn.k_proj.bias";
    decoder.weights.get_mut(bias).unwrap().values.pop();
    let error = encode(&decoder).unwrap_err().to_string();
    assert!(error.contains(bias) && error.contains("[16]") && error.contains("15 values"), "{error}");
    // As in a Llama.
    decoder.weights.remove(bias);
    let error = encode(&decoder).unwrap_err().to_string();
    assert!(error.contains(bias) && error.contains("Qwen2") && error.contains("no such weight"), "{error}");
    let unreadable = encode_decoder(&decoder.shape, &mut |_| Err("the disk is gone".into())).unwrap_err();
    assert!(matches!(&unreadable, OnnxError::Read { .. }) && unreadable.to_string().contains("the disk is gone"));
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let wrong = [
        DecoderShape { num_heads: 3, ..shape(4, true) },
        DecoderShape { num_kv_heads: 0, ..shape(4, true) },
        DecoderShape { head_dim: 7, ..shape(4, true) },
    ];
    for shape in wrong {
        let encoded = encode_decoder(&shape, &mut |_| Ok(None));
        assert!(matches!(encoded, Err(OnnxError::Shape { .. })), "{shape:?}");
    }
}
