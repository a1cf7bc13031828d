//! Accuracy of a policy on the questions of its world.

use anyhow::Result;
use corver_core::response::AnswerRule;
use corver_core::{Label, Question, Sampling};
use corver_demo::{QuestionSplit, World};
use corver_learn::{Model, sample};
use corver_pretrained::ChatTokenizer;
use serde::Serialize;

/// Answers of a trained policy, as shares of 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PolicyQuality {
    /// Right answers at temperature 1, training phrasings.
    pub sampled: f64,
    /// Right answers at temperature 1, held-out phrasings.
    pub sampled_held_out: f64,
    /// Right answers, greedy, held-out phrasings.
    pub greedy_held_out: f64,
    /// Refusals at temperature 1, training phrasings.
    pub refused: f64,
}

/// Longest completion, tokens. Four sentences and the tags are well below.
const MAX_COMPLETION: usize = 96;

/// Samples an answer to every question of the world, and grades it.
///
/// # Errors
/// Fails if the tokenizer or libtorch fails.
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
    let train = world.questions(QuestionSplit::Train);
    let held_out = world.questions(QuestionSplit::HeldOut);
    let sampled_train = grade(model, tokenizer, &train, &sampled, seed)?;
    let sampled_held_out = grade(model, tokenizer, &held_out, &sampled, seed)?;
    let greedy_held_out = grade(model, tokenizer, &held_out, &greedy, seed)?;
    Ok(PolicyQuality {
        sampled: sampled_train.right,
        sampled_held_out: sampled_held_out.right,
        greedy_held_out: greedy_held_out.right,
        refused: sampled_train.refused,
    })
}

/// Shares of right answers and of refusals.
struct AnswerShares {
    right: f64,
    refused: f64,
}

fn grade(
    model: &Model,
    tokenizer: &ChatTokenizer,
    questions: &[Question],
    sampling: &Sampling,
    seed: u64,
) -> Result<AnswerShares> {
    let mut right = 0;
    let mut refused = 0;
    let mut total = 0;
    for chunk in questions.chunks(64) {
        let prompts: Vec<Vec<u32>> =
            chunk.iter().map(|q| tokenizer.prompt(None, &q.question)).collect::<Result<_, _>>()?;
        let slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let completions = sample(model, &slices, sampling, tokenizer.stop_tokens(), seed)?;
        for (n, completion) in completions.iter().enumerate() {
            let text = tokenizer.decode(&completion.tokens)?;
            match AnswerRule::default().grade(&text, &chunk[n / sampling.num_generations].golds) {
                Label::Good => right += 1,
                Label::NotAttempted => refused += 1,
                Label::Bad => {}
            }
            total += 1;
        }
    }
    Ok(AnswerShares {
        right: f64::from(right) / f64::from(total),
        refused: f64::from(refused) / f64::from(total),
    })
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
