//! Compares the learner with recorded numbers: TRL's loss, `transformers`' schedule, PyTorch's AdamW
//! and clipping; and the tokenizer with recorded decodings. `make conformance` runs the tests.

#[path = "../../../tests/golden.rs"]
mod golden;

use corver_learn::loss::{LossInputs, grpo_loss, row_weights};
use corver_learn::{
    AdamW, AdamWSettings, CosineSchedule, ImportanceLevel, LossSettings, LossType, clip_gradients,
};
use corver_pretrained::ChatTokenizer;
use golden::{check_all, close, numbers, same, shared};
use serde_json::Value;
use tch::{Kind, Tensor};

fn matrix(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().expect("rows").iter().map(numbers).collect()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} is no number"))
}

fn count(row: &Value, key: &str) -> usize {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} is no count")) as usize
}

fn list(tensor: &Tensor) -> Vec<f64> {
    tensor.to_kind(Kind::Double).contiguous().view(-1).try_into().expect("f64")
}

fn all_close(
    what: &str,
    got: &[f64],
    expected: &[f64],
    absolute: f64,
    relative: f64,
) -> Result<(), String> {
    same(&format!("length of {what}"), got.len(), expected.len())?;
    let mut pairs = got.iter().zip(expected).enumerate();
    pairs.try_for_each(|(i, (g, e))| close(&format!("{what}[{i}]"), *g, *e, absolute, relative))
}

/// One recorded batch without its masked tokens.
struct RecordedBatch {
    lengths: Vec<usize>,
    mask: Vec<Vec<f64>>,
}

impl RecordedBatch {
    fn new(row: &Value) -> Self {
        let mask = matrix(&row["mask"]);
        Self {
            lengths: mask.iter().map(|m| m.iter().filter(|x| **x == 1.0).count()).collect(),
            mask,
        }
    }

    /// Returns the values at the unmasked tokens, from `[B, T]` or `[B]`.
    fn flat(&self, value: &Value) -> Vec<f64> {
        self.pick(value, true)
    }

    fn pick(&self, value: &Value, inside: bool) -> Vec<f64> {
        let mut picked = Vec::new();
        for (row, mask) in value.as_array().expect("rows").iter().zip(&self.mask) {
            let row = row.as_f64().map_or_else(|| numbers(row), |value| vec![value; mask.len()]);
            picked.extend(
                row.iter().zip(mask).filter(|(_, m)| (**m == 1.0) == inside).map(|(x, _)| *x),
            );
        }
        picked
    }

    fn per_token<T: Copy>(&self, row_value: impl Fn(usize) -> T) -> Vec<T> {
        self.lengths.iter().enumerate().flat_map(|(row, &n)| vec![row_value(row); n]).collect()
    }
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn grpo_loss_and_gradients_match_reference() {
    check_all("grpo_loss", |row| {
        let settings: LossSettings = serde_json::from_value(serde_json::json!({
            "loss_type": row["loss_type"], "beta": row["beta"], "delta": row["delta"],
            "epsilon_low": row["epsilon_low"], "epsilon_high": row["epsilon_high"],
            "importance_sampling_level": row["importance_sampling_level"],
        }))
        .expect("the recorded settings are known ones");
        let batch = RecordedBatch::new(row);
        let weights = row_weights(
            settings.loss_type,
            &batch.lengths,
            count(row, "max_completion_length"),
            count(row, "num_items_in_batch"),
        );
        // TRL divides by the accumulation steps, except for dapo. Here the weights of a full step need
        // no division.
        let steps = if settings.loss_type == LossType::Dapo {
            1.0
        } else {
            number(row, "gradient_accumulation_steps")
        };
        let optional =
            |key: &str| (!row[key].is_null()).then(|| Tensor::from_slice(&batch.flat(&row[key])));
        let new = Tensor::from_slice(&batch.flat(&row["logps"])).set_requires_grad(true);
        let old = optional("old_logps");
        let reference = optional("ref_logps");
        let inputs = LossInputs {
            new: &new,
            old: old.as_ref(),
            correction: None,
            reference: reference.as_ref(),
            advantages: &Tensor::from_slice(&batch.flat(&row["advantages"])),
            weights: &Tensor::from_slice(&batch.per_token(|r| weights[r] / steps)),
            rows: &Tensor::from_slice(&batch.per_token(|r| r as i64)),
            lengths: &Tensor::from_slice(
                &batch.lengths.iter().map(|&n| n as i64).collect::<Vec<_>>(),
            ),
        };
        let loss = grpo_loss(&settings, &inputs).map_err(|e| e.to_string())?;
        let num_tokens = batch.lengths.iter().sum::<usize>().max(1) as f64;
        // If TRL has one number per row, it logs the plain mean over the rows, including empty ones.
        // Here every logged value is the mean over tokens. The loss is not affected.
        let one_per_row = batch.mask[0].len() == 1;
        let one_ratio_per_row = settings.importance_sampling_level == ImportanceLevel::Sequence
            && row["advantages"][0].is_number();
        close("loss", loss.loss.double_value(&[]), number(row, "loss"), 1e-12, 1e-9)?;
        if settings.beta != 0.0 {
            let kl = loss.kl_sum.ok_or("no kl")? / num_tokens;
            let rows =
                row["mean_kl_per_sequence"].as_array().expect("a list").iter().zip(&batch.lengths);
            let sum: f64 = rows.filter_map(|(kl, n)| Some(kl.as_f64()? * *n as f64)).sum();
            close("mean_kl_per_sequence, by tokens", kl, sum / num_tokens, 1e-9, 1e-6)?;
            if !one_per_row {
                close("mean_kl", kl, number(row, "mean_kl"), 1e-9, 1e-6)?;
            }
        }
        if row["has_boundary_ratio"].as_bool().expect("a flag") {
            return Ok(());
        }
        let gradient = Tensor::run_backward(&[loss.loss], &[&new], false, false).remove(0);
        all_close("grad_logps", &list(&gradient), &batch.flat(&row["grad_logps"]), 1e-12, 1e-9)?;
        same(
            "gradient outside the mask",
            batch.pick(&row["grad_logps"], false).iter().all(|g| *g == 0.0),
            true,
        )?;
        if one_per_row || one_ratio_per_row {
            return Ok(());
        }
        let low = loss.clipped_low / num_tokens;
        let high = loss.clipped_high / num_tokens;
        close("clip_ratio_low", low, number(row, "clip_ratio_low"), 1e-7, 1e-6)?;
        close("clip_ratio_high", high, number(row, "clip_ratio_high"), 1e-7, 1e-6)?;
        close("clip_ratio", low + high, number(row, "clip_ratio"), 1e-7, 1e-6)
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn learning_rates_match_reference() {
    check_all("lr_schedule", |row| {
        let total = count(row, "total_steps");
        let schedule =
            CosineSchedule::new(number(row, "base_lr"), total, number(row, "warmup_ratio"));
        same("warmup_steps", schedule.warmup_steps(), count(row, "warmup_steps"))?;
        let got: Vec<f64> = (0..total).map(|done| schedule.rate(done)).collect();
        all_close("lr_used_at_step", &got, &numbers(&row["lr_used_at_step"]), 1e-20, 1e-12)?;
        close("lr_after_last", schedule.rate(total), number(row, "lr_after_last"), 1e-20, 1e-12)
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn adamw_steps_match_reference() {
    check_all("adamw", |row| {
        let betas = numbers(&row["betas"]);
        let settings = AdamWSettings {
            beta1: betas[0],
            beta2: betas[1],
            eps: number(row, "eps"),
            weight_decay: number(row, "weight_decay"),
            ..AdamWSettings::with_f32_moments()
        };
        let mut optimizer = AdamW::new(vec![Tensor::from_slice(&numbers(&row["init"]))], settings)
            .map_err(|e| e.to_string())?;
        let rates = numbers(&row["lrs"]);
        let params = matrix(&row["params"]);
        for (step, gradient) in matrix(&row["grads"]).into_iter().enumerate() {
            let mut gradients = [Tensor::from_slice(&gradient)];
            if let Some(max_norm) = row["max_grad_norm"].as_f64() {
                let norm = clip_gradients(&mut gradients, max_norm).map_err(|e| e.to_string())?;
                close("norm", norm, numbers(&row["grad_norms_before_clip"])[step], 1e-15, 1e-9)?;
            }
            optimizer.step(&gradients, rates[step]).map_err(|e| e.to_string())?;
            all_close("params", &list(&optimizer.parameters()[0]), &params[step], 1e-14, 1e-12)?;
        }
        let (first, second) = optimizer.moments().map_err(|e| e.to_string())?;
        same("steps", optimizer.steps(), params.len())?;
        all_close("exp_avg", &list(&first[0]), &numbers(&row["exp_avg"]), 1e-16, 1e-9)?;
        all_close("exp_avg_sq", &list(&second[0]), &numbers(&row["exp_avg_sq"]), 1e-16, 1e-9)
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn clipped_gradients_match_reference() {
    check_all("grad_clip", |row| {
        let mut gradients: Vec<Tensor> =
            matrix(&row["grads"]).iter().map(|g| Tensor::from_slice(g)).collect();
        let norm =
            clip_gradients(&mut gradients, number(row, "max_norm")).map_err(|e| e.to_string())?;
        close("total_norm", norm, number(row, "total_norm"), 0.0, 1e-12)?;
        let got: Vec<f64> = gradients.iter().flat_map(list).collect();
        all_close("clipped", &got, &matrix(&row["clipped"]).concat(), 0.0, 1e-12)
    });
}

/// Returns a tokenizer of the golden set, with the other files of a policy's folder.
fn tokenizer(name: &str) -> ChatTokenizer {
    let source = shared(&format!("golden/tokenizers/{name}/tokenizer.json"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::copy(&source, folder.path().join("tokenizer.json"))
        .unwrap_or_else(|e| panic!("{}: {e}", source.display()));
    let config = r#"{"chat_template": "{{ messages[0].content }}"}"#;
    std::fs::write(folder.path().join("tokenizer_config.json"), config)
        .expect("a writable temporary folder");
    ChatTokenizer::load(folder.path()).expect("a tokenizer")
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn decoded_tokens_and_spans_match_reference() {
    let [byte_level, metaspace] = ["bytelevel-4k", "metaspace-4k"].map(tokenizer);
    check_all("alignment", |row| {
        // The published pipeline cleans up English texts; the policy decodes without it.
        if row["clean_up_tokenization_spaces"] == true {
            return Ok(());
        }
        let tokenizer = if row["tokenizer"] == "bytelevel-4k" { &byte_level } else { &metaspace };
        let ids = numbers(&row["ids"]).into_iter().zip(numbers(&row["mask"]));
        let ids: Vec<u32> = ids.filter(|(_, mask)| *mask != 0.0).map(|(id, _)| id as u32).collect();
        let decoded = tokenizer.decode_with_spans(&ids).map_err(|e| e.to_string())?;
        same("decoded", decoded.text.as_str(), row["decoded"].as_str().expect("text"))?;
        let alone = tokenizer.token_texts(&ids).map_err(|e| e.to_string())?;
        let alone: Vec<String> = alone.into_iter().map(Option::unwrap_or_default).collect();
        let expected =
            row["token_texts"].as_array().expect("texts").iter().filter_map(Value::as_str);
        same("token_texts", alone, expected.map(str::to_owned).collect())?;
        let length = decoded.text.chars().count();
        let mut covered = 0;
        for span in decoded.token_spans.iter().flatten() {
            same("gap before a token", span.start <= covered && span.end <= length, true)?;
            covered = covered.max(span.end);
        }
        same("characters covered", covered, length)
    });
}
