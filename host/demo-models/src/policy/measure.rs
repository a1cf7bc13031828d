//! How much of the world a policy knows.

use anyhow::Result;
use corver_core::response::AnswerRule;
use corver_core::{Label, Question, Sampling};
use corver_demo::{QuestionSplit, World};
use corver_learn::{Model, sample};
use corver_pretrained::ChatTokenizer;
use serde::Serialize;

/// Measured on the trained policy; shares of 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PolicyQuality {
    /// Right answers at temperature 1, phrasings seen in training.
    pub sampled: f64,
    /// Right answers at temperature 1, held-out phrasings.
    pub sampled_held_out: f64,
    /// Right answers, greedy, held-out phrasings.
    pub greedy_held_out: f64,
    /// Refusals at temperature 1, phrasings seen in training.
    pub refused: f64,
}

/// Longest completion, tokens: three sentences and the tags stay well below.
const MAX_COMPLETION: usize = 96;

/// Asks the policy every question of the world.
///
/// # Errors
/// Where the tokenizer or libtorch fails.
pub fn measure(
    world: &World,
    model: &Model,
    tokenizer: &ChatTokenizer,
    seed: u64,
) -> Result<PolicyQuality> {
    let sampled = Sampling {
        num_generations: 1,
        max_completion_length: MAX_COMPLETION,
        ..Sampling::default()
    };
    let greedy = Sampling::greedy(MAX_COMPLETION);
    let (train, held_out) =
        (world.questions(QuestionSplit::Train), world.questions(QuestionSplit::HeldOut));
    let (sampled_train, refused) = shares(model, tokenizer, &train, &sampled, seed)?;
    Ok(PolicyQuality {
        sampled: sampled_train,
        sampled_held_out: shares(model, tokenizer, &held_out, &sampled, seed)?.0,
        greedy_held_out: shares(model, tokenizer, &held_out, &greedy, seed)?.0,
        refused,
    })
}

/// Shares of right answers and of refusals.
fn shares(
    model: &Model,
    tokenizer: &ChatTokenizer,
    questions: &[Question],
    sampling: &Sampling,
    seed: u64,
) -> Result<(f64, f64)> {
    let (mut right, mut refused, mut all) = (0, 0, 0);
    for chunk in questions.chunks(64) {
        let prompts: Vec<Vec<u32>> =
            chunk.iter().map(|q| tokenizer.prompt(None, &q.question)).collect::<Result<_, _>>()?;
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let completions = sample(model, &prompts, sampling, tokenizer.stop_tokens(), seed)?;
        for (n, completion) in completions.iter().enumerate() {
            let text = tokenizer.decode(&completion.tokens)?;
            match AnswerRule::Paper.grade(&text, &chunk[n / sampling.num_generations].golds) {
                Label::Good => right += 1,
                Label::NotAttempted => refused += 1,
                Label::Bad => {}
            }
            all += 1;
        }
    }
    Ok((f64::from(right) / f64::from(all), f64::from(refused) / f64::from(all)))
}

#[cfg(test)]
mod tests {
    use corver_core::{Device, Precision};
    use corver_demo::{demo_world, materialise};
    use corver_learn::find_device;

    use super::*;

    #[test]
    fn shipped_policy_has_moderate_accuracy_and_refuses() {
        let cache = tempfile::tempdir().unwrap();
        let folder = materialise(cache.path()).unwrap().policy;
        let model =
            Model::load(&folder, Precision::F32, find_device(Device::Cpu).unwrap()).unwrap();
        let tokenizer = ChatTokenizer::load(&folder).unwrap();
        let quality = measure(&demo_world(), &model, &tokenizer, 1).unwrap();
        assert!((0.35..=0.65).contains(&quality.sampled), "{quality:?}");
        assert!((0.35..=0.65).contains(&quality.sampled_held_out), "{quality:?}");
        assert!(quality.refused > 0.01, "{quality:?}");
    }
}
