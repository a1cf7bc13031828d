//! Stages 3 to 7 together: rollouts → returns, without a policy.

use tracing::info_span;

use crate::language::bare_triplets;
use crate::returns::{
    advantage_signs, response_return, sentence_rewards, token_returns, token_rewards,
};
use crate::sentence::align;
use crate::split::split;
use crate::stage::{Stage, StageSeconds, StageTimer, StepError};
use crate::trace::SentenceTrace;
use crate::triplet::{Extracted, ExtractionBatch};
use crate::verdict::check_shape;
use crate::{
    Alignment, BackendStats, Backends, BoxError, Completion, Extractor, ExtractorInput, Graders,
    Question, ResponseGrades, RewardSettings, Rollout, Sentence, SentenceScorer, SentenceVerdict,
    Trace,
};

/// The parts that a completion is scored with.
pub struct Scorers<'a, 'b> {
    /// Model that reads triplets from sentences.
    pub extractor: &'a mut dyn Extractor,
    /// Backends that answer the requests of rules.
    pub backends: &'a mut Backends<'b>,
    /// Rule that gives each sentence a verdict.
    pub sentence_scorer: &'a mut dyn SentenceScorer,
    /// Rules that give each completion its response-level rewards.
    pub graders: &'a mut Graders,
}

impl<'b> Scorers<'_, 'b> {
    /// Separates the extractor from the rules, so that a batch of it can be open while the policy
    /// samples.
    pub(crate) fn separate_extractor(&mut self) -> (&mut dyn Extractor, RuleScorers<'_, 'b>) {
        let extractor: &mut dyn Extractor = self.extractor;
        let rules = RuleScorers {
            backends: self.backends,
            sentence_scorer: self.sentence_scorer,
            graders: self.graders,
        };
        (extractor, rules)
    }
}

/// The scorers without the extractor.
pub(crate) struct RuleScorers<'a, 'b> {
    pub(crate) backends: &'a mut Backends<'b>,
    pub(crate) sentence_scorer: &'a mut dyn SentenceScorer,
    pub(crate) graders: &'a mut Graders,
}

/// A completion with the returns of its tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScoredCompletion {
    /// `[T]` return of each token.
    pub returns: Vec<f64>,
    /// `[T]` part of the return that a rule gave to this token alone; 0 for all others.
    pub token_rewards: Vec<f64>,
    /// `[T]` sign that the token's advantage takes, 1 or −1; 0: it keeps its own.
    pub advantage_signs: Vec<i8>,
    /// Record of how the returns were computed.
    pub trace: Trace,
}

/// Scored completions, with their requests and times.
pub struct Scored {
    /// Scored completions, one per rollout.
    pub completions: Vec<ScoredCompletion>,
    /// Requests of the rules.
    pub backend_stats: BackendStats,
    /// Number of sentences whose extractor reply was not understood.
    pub not_understood: usize,
    /// Time of the stages of the reward.
    pub seconds: StageSeconds,
}

/// Scores completions: extraction, sentence rules, response rules and returns.
///
/// # Errors
/// If a part fails.
pub fn score(
    rollouts: &[Rollout],
    questions: &[Question],
    scorers: &mut Scorers<'_, '_>,
    settings: &RewardSettings,
) -> Result<Scored, StepError> {
    let timer = StageTimer::default();
    let (extractor, mut rules) = scorers.separate_extractor();
    let reads_triplets = rules.sentence_scorer.reads_triplets();
    let ExtractedCompletions { splits, not_understood } = timer.time(Stage::Extract, || {
        let mut extraction = Extraction::start(extractor, reads_triplets, questions, settings);
        for (index, rollout) in rollouts.iter().enumerate() {
            extraction.push(index, rollout);
        }
        extraction.finish(rollouts.len())
    })?;
    let (completions, backend_stats) = timer.time(Stage::Reward, || {
        compute_returns(rollouts, splits, questions, &mut rules, settings, &timer)
    })?;
    let seconds = timer.seconds(backend_stats.seconds());
    Ok(Scored { completions, backend_stats, not_understood, seconds })
}

/// A completion split into sentences, which are aligned to its tokens.
pub(crate) struct SplitCompletion {
    sentences: Vec<Sentence>,
    alignment: Alignment,
    /// True if its sentences are scored: the settings want it, and enough of its tokens are
    /// aligned.
    scores_sentences: bool,
}

impl SplitCompletion {
    fn new(rollout: &Rollout, settings: &RewardSettings) -> Self {
        let split = split(&rollout.text, settings.text());
        let alignment = align(&split, &rollout.token_spans);
        let scores_sentences = settings.sentence_rewards_enabled()
            && !split.sentences.is_empty()
            && alignment.rate >= settings.min_alignment;
        Self { sentences: split.sentences, alignment, scores_sentences }
    }
}

/// Split completions with the triplets of their sentences.
pub(crate) struct ExtractedCompletions {
    /// Completions in the order of the rollouts.
    pub(crate) splits: Vec<SplitCompletion>,
    /// Number of sentences whose extractor reply was not understood.
    pub(crate) not_understood: usize,
}

/// Rollouts that are split as they finish, and their sentences on the way through the extractor.
pub(crate) struct Extraction<'a> {
    batch: Box<dyn ExtractionBatch + 'a>,
    /// Questions of the rollouts.
    questions: &'a [Question],
    settings: &'a RewardSettings,
    reads_triplets: bool,
    /// By the index of the rollout; `None` until it is pushed.
    splits: Vec<Option<SplitCompletion>>,
    /// `(rollout, sentence)` of every sentence in the batch.
    owners: Vec<(usize, usize)>,
}

impl<'a> Extraction<'a> {
    /// Starts a batch of the extractor. It stays empty if the rules read no triplets.
    pub(crate) fn start(
        extractor: &'a mut dyn Extractor,
        reads_triplets: bool,
        questions: &'a [Question],
        settings: &'a RewardSettings,
    ) -> Self {
        Self {
            reads_triplets,
            questions,
            batch: extractor.start(),
            settings,
            splits: Vec::new(),
            owners: Vec::new(),
        }
    }

    /// Splits a rollout, and sends its sentences to the extractor if a rule reads triplets.
    pub(crate) fn push(&mut self, index: usize, rollout: &Rollout) {
        let split = info_span!("split").in_scope(|| SplitCompletion::new(rollout, self.settings));
        if split.scores_sentences && self.reads_triplets {
            let question = self.questions.get(rollout.question);
            let question = question.map_or("", |question| question.question.as_str());
            for (number, sentence) in split.sentences.iter().enumerate() {
                self.batch.push(ExtractorInput { sentence: &sentence.text, question });
                self.owners.push((index, number));
            }
        }
        if self.splits.len() <= index {
            self.splits.resize_with(index + 1, || None);
        }
        self.splits[index] = Some(split);
    }

    /// Waits for the triplets, and returns the split completions in the order of the rollouts.
    ///
    /// # Errors
    /// If the extractor fails, or a rollout was never pushed.
    pub(crate) fn finish(self, num_rollouts: usize) -> Result<ExtractedCompletions, StepError> {
        let Extracted { triplets, not_understood } =
            self.batch.finish().map_err(StepError::Extract)?;
        if triplets.len() != self.owners.len() {
            let problem = format!(
                "the extractor returned the triplets of {} of {} sentences",
                triplets.len(),
                self.owners.len()
            );
            return Err(StepError::Extract(problem.into()));
        }
        let mut splits: Vec<SplitCompletion> = self.splits.into_iter().flatten().collect();
        if splits.len() != num_rollouts {
            let problem =
                format!("the policy reported {} of {num_rollouts} rollouts", splits.len());
            return Err(StepError::Rollout(problem.into()));
        }
        for ((rollout, sentence), own_triplets) in self.owners.into_iter().zip(triplets) {
            splits[rollout].sentences[sentence].triplets =
                bare_triplets(own_triplets, self.settings.language);
        }
        Ok(ExtractedCompletions { splits, not_understood })
    }
}

/// Returns the completions with the returns of their tokens, and the requests of the rules (stages 5
/// to 7).
///
/// # Errors
/// If a part fails.
pub(crate) fn compute_returns(
    rollouts: &[Rollout],
    splits: Vec<SplitCompletion>,
    questions: &[Question],
    rules: &mut RuleScorers<'_, '_>,
    settings: &RewardSettings,
    timer: &StageTimer,
) -> Result<(Vec<ScoredCompletion>, BackendStats), StepError> {
    let mut completions = Vec::with_capacity(rollouts.len());
    for (rollout, split) in rollouts.iter().zip(&splits) {
        let question = &questions[rollout.question];
        completions.push(Completion::new(question, rollout, &split.sentences));
    }
    rules.backends.take_stats();
    let all_verdicts = timer
        .time(Stage::ScoreSentences, || score_sentences(&completions, &splits, rules))
        .map_err(StepError::ScoreSentences)?;
    let all_grades = timer
        .time(Stage::GradeResponses, || rules.graders.grade(&completions, rules.backends))
        .map_err(StepError::GradeResponses)?;

    let mut scored = Vec::with_capacity(rollouts.len());
    for (((rollout, split), verdicts), grades) in
        rollouts.iter().zip(splits).zip(all_verdicts).zip(all_grades)
    {
        let question = &questions[rollout.question];
        scored.push(ScoredCompletion::new(question, rollout, split, verdicts, grades, settings));
    }
    Ok((scored, rules.backends.take_stats()))
}

/// Returns the verdicts of each completion; none for one whose sentences are not scored.
fn score_sentences(
    completions: &[Completion<'_>],
    splits: &[SplitCompletion],
    rules: &mut RuleScorers<'_, '_>,
) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
    let mut to_score = Vec::new();
    for (completion, split) in completions.iter().zip(splits) {
        if split.scores_sentences {
            to_score.push(*completion);
        }
    }
    if to_score.is_empty() {
        return Ok(vec![Vec::new(); completions.len()]);
    }
    let scored = rules.sentence_scorer.score(&to_score, rules.backends)?;
    check_shape("the rule", &to_score, &scored)?;

    let mut next_scored = scored.into_iter();
    let mut verdicts = Vec::with_capacity(completions.len());
    for split in splits {
        let own = if split.scores_sentences { next_scored.next() } else { None };
        verdicts.push(own.unwrap_or_default());
    }
    Ok(verdicts)
}

impl ScoredCompletion {
    /// Returns true if a single token has a reward of its own.
    #[must_use]
    pub fn has_token_rewards(&self) -> bool {
        self.token_rewards.iter().any(|reward| *reward != 0.0)
    }

    /// Returns true if the advantage of a token takes a sign from the rule.
    #[must_use]
    pub fn has_signs(&self) -> bool {
        self.advantage_signs.iter().any(|sign| *sign != 0)
    }

    /// Spreads the rewards over the tokens. `verdicts` has one entry per sentence, or none if the
    /// sentences were not scored.
    fn new(
        question: &Question,
        rollout: &Rollout,
        split: SplitCompletion,
        verdicts: Vec<SentenceVerdict>,
        grades: ResponseGrades,
        settings: &RewardSettings,
    ) -> Self {
        let SplitCompletion { sentences, alignment, scores_sentences } = split;
        let rewards = sentence_rewards(&verdicts, &sentences, &alignment, rollout);
        let returns = token_returns(&grades, &alignment, &rewards, settings);
        let token_rewards = token_rewards(&alignment, &rewards, settings);
        let advantage_signs = advantage_signs(&verdicts, &alignment);
        let mean_return = if returns.is_empty() {
            response_return(&grades, settings)
        } else {
            returns.iter().sum::<f64>() / returns.len() as f64
        };

        let mut sentence_traces = Vec::with_capacity(sentences.len());
        let mut next_verdict = verdicts.into_iter();
        let token_spans = alignment.token_spans(sentences.len());
        for (sentence, tokens) in sentences.into_iter().zip(token_spans) {
            sentence_traces.push(SentenceTrace {
                text: sentence.text,
                section: sentence.section,
                triplets: sentence.triplets,
                verdict: next_verdict.next(),
                tokens,
            });
        }
        let trace = Trace {
            question: question.question.clone(),
            completion: rollout.text.clone(),
            sentences: sentence_traces,
            response: grades,
            alignment_rate: alignment.rate,
            fallback: settings.sentence_rewards_enabled() && !scores_sentences,
            mean_return,
        };
        Self { returns, token_rewards, advantage_signs, trace }
    }
}
