//! Counts of the demo's articles in a real index separate true pairs from false ones, in all four
//! tiers.

use corver_corpus::{BuildOptions, CnfOptions, TextIndex, Tokenizer, build_from_documents};
use corver_demo::{WINDOW, World, demo_world, materialise};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn index(world: &World, folder: &std::path::Path) -> TextIndex {
    let policy = materialise(&folder.join("cache")).unwrap().policy;
    let tokenizer = Tokenizer::open(policy.join("tokenizer.json")).unwrap();
    let articles: Vec<_> = world.articles().collect();
    let texts = articles.iter().map(|article| article.text.as_str());
    build_from_documents(texts, &tokenizer, &folder.join("index"), &BuildOptions::default())
        .unwrap();
    TextIndex::open(folder.join("index")).unwrap()
}

/// Counts all words of both names, as the shipped rules do.
fn count(corpus: &TextIndex, head: &str, tail: &str) -> u64 {
    let mut words: Vec<Vec<String>> = Vec::new();
    for word in head.split(' ').chain(tail.split(' ')) {
        if !words.iter().any(|known| known[0] == word) {
            words.push(vec![word.to_owned()]);
        }
    }
    corpus
        .count_words(&words, &CnfOptions { max_diff_tokens: WINDOW, ..CnfOptions::default() }, None)
        .unwrap()
        .expect("every word has tokens")
        .count
}

fn tiers(counts: &[u64]) -> [f64; 4] {
    let mut tiers = [0.0; 4];
    for &count in counts {
        let tier = match count {
            0 => 0,
            1..5 => 1,
            5..20 => 2,
            _ => 3,
        };
        tiers[tier] += 1.0 / counts.len() as f64;
    }
    tiers
}

#[test]
fn counts_separate_true_pairs_from_false() {
    let folder = tempfile::tempdir().unwrap();
    let world = demo_world();
    let corpus = index(&world, folder.path());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut of_true = Vec::new();
    let mut of_false = Vec::new();
    for fact in world.facts() {
        of_true.push(count(&corpus, world.name(fact.head), world.name(fact.tails[0])));
        let tail_kind = fact.relation.kinds().1;
        let wrong = world.random_id(tail_kind, &mut rng);
        if !fact.tails.contains(&wrong) && wrong != fact.head {
            of_false.push(count(&corpus, world.name(fact.head), world.name(wrong)));
        }
    }
    let of_true = tiers(&of_true);
    let of_false = tiers(&of_false);
    let shares = format!(
        "shares of 0, 1–4, 5–19, ≥ 20: true pairs {of_true:.2?}, false ones {of_false:.2?}"
    );
    assert!(of_true.iter().all(|&share| share > 0.05), "{shares}");
    assert!(of_true[0] < 0.2, "{shares}");
    assert!(of_false[0] > 0.8, "{shares}");
}
