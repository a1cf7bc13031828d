//! Mean: every fact of a sentence earns its own reward, and the sentence their mean.
use corver_sdk::prelude::*;

settings! {
    /// Pays a sentence the mean reward of its valid triplets.
    pub struct Mean {
        /// From the count to the reward.
        pub tiers: Tiers = Tiers::default(),
    }
}

impl SentenceRule for Mean {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome {
        let facts = corpus.count_facts(sentence, self.tiers.top())?;
        let Some(&(index, least)) = facts.iter().min_by_key(|&&(_, count)| count) else {
            return abstain("no fact that can be counted");
        };
        let total: f64 = facts.iter().map(|&(_, count)| self.tiers.reward(Some(count))).sum();
        // No single count decided; the trace shows the one that asks for a look.
        verdict(total / facts.len() as f64).because(index, Some(least)).note(&format!("mean of {}", facts.len()))
    }
}

corver_sdk::export!(Mean);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{check, counts, run, sentence};

    const FILM: &[(&str, &str, &str)] =
        &[("Mario Camerini", "directed", "Il Seduttore"), ("Il Seduttore", "starred", "Sophia Loren")];
    const DIRECTED: &str = "Mario AND Camerini AND Il AND Seduttore";
    const STARRED: &str = "Il AND Seduttore AND Sophia AND Loren";

    #[test]
    fn rewards_are_averaged_and_not_counts() {
        let text = sentence("Mario Camerini directed Il Seduttore with Sophia Loren.", FILM);
        let judged = run(&Mean::default(), &text, &counts(&[(DIRECTED, 5_000), (STARRED, 0)]));
        assert_eq!((judged.reward, judged.count, judged.triplet), (Some(-0.1), Some(0), Some(1)));
        assert_eq!(judged.note.as_deref(), Some("mean of 2"));
    }

    #[test]
    fn unknown_counts_do_not_dilute() {
        let text = sentence("Mario Camerini directed Il Seduttore with Sophia Loren.", FILM);
        let unknown = counts(&[(DIRECTED, 0)]).without(STARRED);
        assert_eq!(run(&Mean::default(), &text, &unknown).reward, Some(-0.3));
        assert_eq!(run(&Mean::default(), &sentence("Well.", &[]), &counts(&[])).reward, None);
    }

    #[test]
    fn any_completion_is_judged() {
        check(&Mean::default(), -0.3..=0.1);
    }
}
