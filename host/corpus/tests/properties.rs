//! Random tiny corpora and queries against a reference that is too simple to be wrong.

mod common;

use corver_corpus::{
    BuildOptions, Cnf, CnfCount, CnfOptions, Index, Mode, OpenOptions, TokenWidth, VerifyLevel,
    build_from_tokens, verify,
};
use proptest::prelude::*;

/// A corpus as one list of tokens per shard, separators included.
struct Reference {
    shards: Vec<Vec<u32>>,
    separator: u32,
}

impl Reference {
    fn new(documents: &[Vec<u32>], shards: usize, width: TokenWidth) -> Self {
        let mut streams = vec![Vec::new(); shards];
        for (number, document) in documents.iter().enumerate() {
            streams[number % shards].push(width.separator());
            streams[number % shards].extend(document);
        }
        Self { shards: streams, separator: width.separator() }
    }

    fn count(&self, ngram: &[u32]) -> u64 {
        self.shards.iter().map(|stream| occurrences(stream, ngram).len() as u64).sum()
    }

    /// Every stretch of every document, tried one by one.
    fn count_spans(&self, cnf: &[Vec<Vec<u32>>], max_diff_tokens: usize) -> u64 {
        let holds_all = |stretch: &[u32]| {
            cnf.iter().all(|clause| {
                clause.iter().any(|term| stretch.windows(term.len()).any(|part| part == term))
            })
        };
        let mut matches = 0;
        for stream in &self.shards {
            // A document begins with its separator.
            for document in stream.chunk_by(|_, &token| token != self.separator) {
                for left in 0..document.len() {
                    for right in left + 1..=document.len().min(left.saturating_add(max_diff_tokens))
                    {
                        let shorter = [&document[left + 1..right], &document[left..right - 1]];
                        matches += u64::from(
                            holds_all(&document[left..right])
                                && !shorter.into_iter().any(holds_all),
                        );
                    }
                }
            }
        }
        matches
    }

    /// Every position of the text against the definition of [`Mode::Exact`].
    fn count_exact(&self, cnf: &[Vec<Vec<u32>>], max_diff_tokens: u64) -> u64 {
        let frequency = |clause: &Vec<Vec<u32>>| -> usize {
            self.shards.iter().map(|stream| starts(stream, clause).len()).sum()
        };
        let counted = (0..cnf.len()).min_by_key(|&number| frequency(&cnf[number])).unwrap();
        self.count_clause(cnf, counted, max_diff_tokens)
    }

    /// Occurrences of one clause that have all others near them in their document.
    fn count_clause(&self, cnf: &[Vec<Vec<u32>>], counted: usize, max_diff_tokens: u64) -> u64 {
        let mut matches = 0;
        for stream in &self.shards {
            let mut documents = Vec::new(); // number of each position's document
            for &token in stream {
                let number = documents.last().copied().unwrap_or(0);
                documents.push(number + u64::from(token == self.separator));
            }
            let clauses: Vec<Vec<usize>> =
                cnf.iter().map(|clause| starts(stream, clause)).collect();
            for &position in &clauses[counted] {
                let is_near = |other: &usize| {
                    position.abs_diff(*other) as u64 <= max_diff_tokens
                        && documents[position] == documents[*other]
                };
                matches += u64::from(clauses.iter().all(|clause| clause.iter().any(is_near)));
            }
        }
        matches
    }

    /// The official engine's rule without sampling, with a linear search for everything.
    fn count_cnf(&self, cnf: &[Vec<Vec<u32>>], max_diff_tokens: u64) -> u64 {
        self.shards.iter().map(|stream| self.count_in(stream, cnf, max_diff_tokens)).sum()
    }

    fn count_in(&self, stream: &[u32], cnf: &[Vec<Vec<u32>>], max_diff_tokens: u64) -> u64 {
        let positions = |clause: &Vec<Vec<u32>>| {
            clause.iter().flat_map(|term| occurrences(stream, term)).collect()
        };
        let mut clauses: Vec<Vec<u64>> = cnf.iter().map(positions).collect();
        clauses.sort_by_key(Vec::len); // stable, as the engine's
        let mut ranges: Vec<(u64, u64)> =
            clauses[0].iter().map(|&position| (position, position)).collect();
        for clause in &clauses[1..] {
            ranges = ranges
                .into_iter()
                .filter_map(|(left, right)| {
                    let before = clause
                        .iter()
                        .copied()
                        .filter(|&p| p < right && p + max_diff_tokens >= left)
                        .max();
                    let after = clause
                        .iter()
                        .copied()
                        .filter(|&p| p >= left && p <= right + max_diff_tokens)
                        .min();
                    (before.is_some() || after.is_some()).then(|| {
                        (left.min(before.unwrap_or(left)), right.max(after.unwrap_or(right)))
                    })
                })
                .collect();
        }
        let whole = |&(left, right): &(u64, u64)| {
            !stream[left as usize..right as usize].contains(&self.separator)
        };
        ranges.iter().filter(|range| whole(range)).count() as u64
    }
}

fn occurrences(stream: &[u32], ngram: &[u32]) -> Vec<u64> {
    (0..stream.len())
        .filter(|&start| stream[start..].starts_with(ngram))
        .map(|start| start as u64)
        .collect()
}

/// Returns the positions where a term of the clause begins, each once.
fn starts(stream: &[u32], clause: &[Vec<u32>]) -> Vec<usize> {
    (0..stream.len())
        .filter(|&start| clause.iter().any(|term| stream[start..].starts_with(term)))
        .collect()
}

#[derive(Debug, Clone)]
struct Case {
    width: TokenWidth,
    shards: usize,
    pointer_width: Option<usize>,
    documents: Vec<Vec<u32>>,
    cnf: Vec<Vec<Vec<u32>>>,
    max_diff_tokens: u64,
}

/// Few different tokens, so that n-grams repeat, overlap and end where the text ends; their bytes
/// disagree with their numbers about the order. Some queries hold the separator.
fn case() -> impl Strategy<Value = Case> {
    let alphabet = prop_oneof![
        Just((TokenWidth::U8, vec![0, 1, 7, 254])),
        Just((TokenWidth::U16, vec![1, 2, 256, 511])),
        Just((TokenWidth::U32, vec![1, 256, 65_536, 128_000])),
    ];
    (alphabet, 1_usize..4).prop_flat_map(|((width, alphabet), shards)| {
        let word = proptest::sample::select(alphabet.clone());
        let token =
            prop_oneof![12 => proptest::sample::select(alphabet), 1 => Just(width.separator())];
        let document = prop_oneof![
            proptest::collection::vec(word.clone(), 0..40),
            proptest::collection::vec(word, 0..6), // shorter than most windows
        ];
        let documents = proptest::collection::vec(document, 3..25);
        let term = proptest::collection::vec(token, 1..4);
        let clause = proptest::collection::vec(term, 1..4);
        let cnf = proptest::collection::vec(clause, 1..5);
        let pointers = prop_oneof![Just(None), (3_usize..=8).prop_map(Some)];
        (Just(width), Just(shards), pointers, documents, cnf, 1_u64..30).prop_map(
            |(width, shards, pointer_width, documents, cnf, max_diff_tokens)| Case {
                width,
                shards,
                pointer_width,
                documents,
                cnf,
                max_diff_tokens,
            },
        )
    })
}

fn with_index<T>(case: &Case, check: impl FnOnce(&Index, &Reference) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let options = BuildOptions {
        shards: case.shards,
        pointer_width: case.pointer_width,
        ..BuildOptions::default()
    };
    build_from_tokens(case.documents.clone(), case.width, &path, &options).unwrap();
    verify(&path, OpenOptions::default(), VerifyLevel::Full).unwrap();
    check(&Index::open(&path).unwrap(), &Reference::new(&case.documents, case.shards, case.width))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn ngram_counts_match_brute_force(case in case()) {
        with_index(&case, |index, reference| {
            for term in case.cnf.iter().flatten() {
                prop_assert_eq!(index.count(term).unwrap(), reference.count(term), "{:?}", term);
            }
            prop_assert_eq!(index.count(&[]).unwrap(), reference.count(&[]));
            Ok(())
        })?;
    }

    #[test]
    fn cooccurrence_counts_match_brute_force(case in case()) {
        with_index(&case, |index, reference| {
            let expected = reference.count_exact(&case.cnf, case.max_diff_tokens);
            let cnf = Cnf::new(case.cnf.clone()).unwrap();
            // A cap that would cut almost every clause must not matter to the exact mode …
            let exact = CnfOptions { max_clause_freq: 2, max_diff_tokens: case.max_diff_tokens, mode: Mode::Exact };
            let answer = index.count_cnf(&cnf, &exact, None).unwrap();
            prop_assert_eq!(answer.count, expected);
            prop_assert!(answer.is_exact());
            // … and any clause can be made the counted one.
            let first = CnfOptions { mode: Mode::ExactFirst, ..exact };
            for counted in 0..case.cnf.len() {
                let mut clauses = case.cnf.clone();
                clauses[..=counted].rotate_right(1);
                let found = index.count_cnf(&Cnf::new(clauses).unwrap(), &first, None).unwrap();
                prop_assert_eq!(found.count, reference.count_clause(&case.cnf, counted, case.max_diff_tokens));
            }
            // The official rule, where nothing is cut. (The alphabet has no false boundaries.)
            let compatible = CnfOptions { max_clause_freq: 1 << 40, mode: Mode::Compatible, ..exact };
            let uncut = index.count_cnf(&cnf, &compatible, None).unwrap();
            prop_assert_eq!(uncut.count, reference.count_cnf(&case.cnf, case.max_diff_tokens));
            for limit in 1..5 {
                let early = index.count_cnf(&cnf, &exact, Some(limit)).unwrap();
                prop_assert_eq!(early.count.min(limit), expected.min(limit));
            }
            // A sampled count stops as well: where it would report enough, and nowhere else.
            let sampled = CnfOptions { max_clause_freq: 3, mode: Mode::Compatible, ..exact };
            let whole = index.count_cnf(&cnf, &sampled, None).unwrap();
            for limit in 1..9 {
                let early = index.count_cnf(&cnf, &sampled, Some(limit)).unwrap();
                prop_assert_eq!(early.count.min(limit), whole.count.min(limit));
                prop_assert!(early.at_least || early == whole);
                prop_assert_eq!((early.approx, early.sampled), (whole.approx, whole.sampled));
            }
            // A batch is answered as one by one.
            let first_clause = Cnf::new(case.cnf[..1].to_vec()).unwrap();
            let batch = [cnf.clone(), first_clause.clone(), cnf.clone()];
            let alone = index.count_cnf(&first_clause, &exact, None).unwrap();
            prop_assert_eq!(index.count_cnf_batch(&batch, &exact, None, None).unwrap(), [answer, alone, answer]);
            // Keeping sorted lists, or not, changes no answer.
            let uncached = OpenOptions { cache_bytes: 0, ..OpenOptions::default() };
            let uncached = Index::open_with(index.path(), uncached).unwrap();
            prop_assert_eq!(uncached.count_cnf(&cnf, &exact, None).unwrap(), answer);
            let found = index.find_cnf(&cnf, &exact).unwrap();
            prop_assert_eq!(found.iter().map(Vec::len).sum::<usize>() as u64, expected);
            Ok(())
        })?;
    }

    #[test]
    fn exact_count_is_independent_of_shards(case in case()) {
        let exact = CnfOptions { max_clause_freq: 1, max_diff_tokens: case.max_diff_tokens, mode: Mode::Exact };
        let cnf = Cnf::new(case.cnf.clone()).unwrap();
        // A separator of the query would be the start of another document in another shard.
        prop_assume!(!case.cnf.iter().flatten().flatten().any(|&token| token == case.width.separator()));
        let mut counts = Vec::new();
        for shards in 1..4 {
            let case = Case { shards, ..case.clone() };
            counts.push(with_index(&case, |index, _| index.count_cnf(&cnf, &exact, None).unwrap()));
        }
        prop_assert_eq!(counts[0], counts[1]);
        prop_assert_eq!(counts[0], counts[2]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn span_counts_match_brute_force(case in case()) {
        with_index(&case, |index, reference| {
            let expected = reference.count_spans(&case.cnf, case.max_diff_tokens as usize);
            let options = CnfOptions { max_clause_freq: 1, max_diff_tokens: case.max_diff_tokens, mode: Mode::Span };
            let mut clauses = case.cnf.clone();
            let answer = index.count_cnf(&Cnf::new(clauses.clone()).unwrap(), &options, None).unwrap();
            prop_assert_eq!(answer, CnfCount { count: expected, ..CnfCount::default() });
            clauses.reverse();
            let cnf = Cnf::new(clauses).unwrap();
            prop_assert_eq!(index.count_cnf(&cnf, &options, None).unwrap(), answer);
            for limit in 1..5 {
                let early = index.count_cnf(&cnf, &options, Some(limit)).unwrap();
                prop_assert_eq!(early.count, expected.min(limit));
                prop_assert!(early.at_least || early == answer);
            }
            let found = index.find_cnf(&cnf, &options).unwrap();
            prop_assert_eq!(found.iter().map(Vec::len).sum::<usize>() as u64, expected);
            prop_assert!(found.iter().all(|starts| starts.is_sorted()));
            Ok(())
        })?;
    }
}

/// Text so long that most of it is skipped between rare words, and that the sweep goes in several
/// steps.
#[test]
fn rare_and_frequent_span_counts_match_brute_force() {
    let mut state = 99_u64;
    let mut next = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let documents: Vec<Vec<u32>> = (0..50)
        .map(|_| {
            let word = |draw| if draw < 3 { draw as u32 } else { 3 + draw as u32 % 20 };
            (0..next(3_000)).map(|_| word(next(2_000))).collect()
        })
        .collect();
    let case = Case {
        width: TokenWidth::U16,
        shards: 1,
        pointer_width: None,
        documents,
        cnf: Vec::new(),
        max_diff_tokens: 0,
    };
    with_index(&case, |index, reference| {
        for (cnf, max_diff_tokens) in [
            (vec![vec![vec![0]], vec![vec![1]]], 150),
            (vec![vec![vec![0], vec![1]], vec![vec![2], vec![5, 6]], vec![vec![7]]], 60),
            (vec![vec![vec![5]], vec![vec![6]], vec![vec![7, 8], vec![0]]], 30),
            (vec![vec![vec![9]], vec![vec![9]]], 1),
        ] {
            let options = CnfOptions { max_clause_freq: 1, max_diff_tokens, mode: Mode::Span };
            let ours = index.count_cnf(&Cnf::new(cnf.clone()).unwrap(), &options, None).unwrap();
            assert_eq!(
                ours.count,
                reference.count_spans(&cnf, max_diff_tokens as usize),
                "{cnf:?}"
            );
            assert!(ours.count > 0, "{cnf:?} asks nothing");
        }
    });
}

/// Long and short documents and many ranges, in an index large enough for a prefix file: the clause
/// is first scanned for and then sorted, and the answers must not differ.
#[test]
fn cached_lists_do_not_change_counts() {
    let mut state = 12_345_u64;
    let mut next = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    // Token 1 is rare, 2 rarer still and never near most 1s, so that scans read all the text that
    // they may.
    let document: Vec<u32> = (0..70_000)
        .map(|position| match next(200) {
            0 if position < 50_000 => 1,
            1 if position >= 49_000 => 2,
            _ => 10 + next(50) as u32,
        })
        .collect();
    for document_tokens in [20_000, 300] {
        check_cached_counts(document.chunks(document_tokens).map(<[u32]>::to_vec).collect());
    }
}

fn check_cached_counts(documents: Vec<Vec<u32>>) {
    let case = Case {
        width: TokenWidth::U16,
        shards: 1,
        pointer_width: None,
        documents,
        cnf: Vec::new(),
        max_diff_tokens: 0,
    };
    with_index(&case, |index, reference| {
        for (cnf, max_diff_tokens) in [
            (vec![vec![vec![1]], vec![vec![2]]], 3_000),
            (vec![vec![vec![2]], vec![vec![1]], vec![vec![11, 12]]], 1_500),
            (vec![vec![vec![1], vec![2]], vec![vec![2], vec![1]]], 40),
            (vec![vec![vec![11]], vec![vec![2]]], 1_000),
            (vec![vec![vec![11]], vec![vec![12], vec![13]]], 15),
            (vec![vec![vec![12]], vec![vec![12]]], 20),
            (vec![vec![vec![11]], vec![vec![12]], vec![vec![13]]], 400),
            (
                vec![
                    vec![vec![14]],
                    vec![vec![15], vec![15]],
                    vec![vec![16, 17], vec![18]],
                    vec![vec![14]],
                ],
                90,
            ),
        ] {
            for term in cnf.iter().flatten() {
                assert_eq!(index.count(term).unwrap(), reference.count(term), "{term:?}");
            }
            let exact_count = reference.count_exact(&cnf, max_diff_tokens);
            let uncut_count = reference.count_cnf(&cnf, max_diff_tokens);
            let cnf = Cnf::new(cnf).unwrap();
            let exact = CnfOptions { max_clause_freq: 1, max_diff_tokens, mode: Mode::Exact };
            let uncut = CnfOptions { max_clause_freq: 1 << 40, mode: Mode::Compatible, ..exact };
            let uncached = Index::open_with(
                index.path(),
                OpenOptions { cache_bytes: 0, ..OpenOptions::default() },
            )
            .unwrap();
            let little = OpenOptions { cache_bytes: 10_000, ..OpenOptions::default() };
            let little = Index::open_with(index.path(), little).unwrap();
            for index in [index, &uncached, &little] {
                for (options, expected) in [(exact, exact_count), (uncut, uncut_count)] {
                    // The first answer leaves lists behind, which the second and the third may use.
                    for _ in 0..3 {
                        assert_eq!(
                            index.count_cnf(&cnf, &options, None).unwrap().count,
                            expected,
                            "{cnf:?}"
                        );
                        let early = index.count_cnf(&cnf, &options, Some(7)).unwrap();
                        assert_eq!(
                            (early.count, early.at_least),
                            (expected.min(7), expected >= 7),
                            "{cnf:?}"
                        );
                    }
                }
            }
        }
    });
}
