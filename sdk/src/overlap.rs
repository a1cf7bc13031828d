//! Overlap of two texts.

use std::collections::HashMap;

/// Returns the F1 of SQuAD: the harmonic mean of the shares that the common words have of the answer
/// and of the gold; 0 without common words.
#[must_use]
pub fn token_f1(answer: &[String], gold: &[String]) -> f64 {
    let mut left: HashMap<&String, usize> = HashMap::new();
    gold.iter().for_each(|word| *left.entry(word).or_default() += 1);
    let mut take = |word| match left.get_mut(word) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    };
    let common = answer.iter().filter(|word| take(*word)).count();
    if common == 0 { 0.0 } else { 2.0 * common as f64 / (answer.len() + gold.len()) as f64 }
}

/// Returns the index of the character of `text` at which a longest common subsequence of the two
/// ends, the first if there are several; `None` without a common character. Takes time proportional
/// to the product of the lengths.
///
/// ```
/// // The rest of the sentence, "and it is old", is not part of it.
/// let end = corver_sdk::overlap::subsequence_end("Rome is in Italy", "Rome is in Italy, and it is old.");
/// assert_eq!(end, Some(15));
/// ```
#[must_use]
pub fn subsequence_end(part: &str, text: &str) -> Option<usize> {
    let part: Vec<char> = part.chars().collect();
    // lengths[n]: the longest common subsequence of the text so far and of the first n characters.
    let mut lengths = vec![0_usize; part.len() + 1];
    let mut end = None;
    for (position, character) in text.chars().enumerate() {
        let longest = lengths[part.len()];
        let mut diagonal = 0;
        for (i, &wanted) in part.iter().enumerate() {
            let before = lengths[i + 1];
            lengths[i + 1] =
                if wanted == character { diagonal + 1 } else { before.max(lengths[i]) };
            diagonal = before;
        }
        if lengths[part.len()] > longest {
            end = Some(position);
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f1(answer: &str, gold: &str) -> f64 {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        token_f1(&words(answer), &words(gold))
    }

    #[test]
    fn token_f1_counts_shared_words() {
        assert_eq!(f1("a b", "a b"), 1.0);
        assert_eq!(f1("a", "a b"), 2.0 / 3.0);
        assert_eq!(f1("a a", "a"), 2.0 / 3.0);
        assert_eq!((f1("a", "b"), f1("", "b"), f1("", "")), (0.0, 0.0, 0.0));
    }

    #[test]
    fn subsequence_end_finds_last_matched_character() {
        assert_eq!(subsequence_end("abc", "a-b-c-d"), Some(4));
        // "ab" is there twice: the first.
        assert_eq!(subsequence_end("ab", "abab"), Some(1));
        // "acd", which skips the b, is longer than "ab".
        assert_eq!(subsequence_end("abcd", "acd"), Some(2));
        assert_eq!(subsequence_end("東京は", "それは東京。"), Some(4));
        assert_eq!(
            (subsequence_end("abc", "xyz"), subsequence_end("", "a"), subsequence_end("a", "")),
            (None, None, None)
        );
    }
}
