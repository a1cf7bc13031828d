//! Sorting in blocks, compared with a naive sort.

use proptest::prelude::*;

use super::*;

/// Returns the positions in the order of their suffixes, and the number of blocks of at most
/// `block_tokens` tokens.
fn in_blocks(stream: &[u16], block_tokens: u64) -> (Vec<usize>, usize) {
    let folder = tempfile::tempdir().unwrap();
    let stream: Vec<u8> = stream.iter().flat_map(|token| token.to_le_bytes()).collect();
    let mut unfinished = UnfinishedIndex::with_stream(folder.path(), &stream);
    let file = SymbolFile::open(&unfinished.path().join("tokenized.0"), TokenWidth::U16).unwrap();
    let parts = std::sync::atomic::AtomicUsize::new(0);
    let count = |progress: BuildProgress| {
        if let BuildProgress::Sorting { .. } = progress {
            parts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let options =
        BuildOptions { pointer_width: Some(4), progress: Some(&count), ..BuildOptions::default() };
    sort_in_blocks(&mut unfinished, 0, &file, block_tokens, TokenWidth::U16, &options).unwrap();
    let table = std::fs::read(unfinished.path().join("table.0")).unwrap();
    let left = std::fs::read_dir(unfinished.path()).unwrap().count();
    assert_eq!(left, 3, "temporary files are left"); // the stream, the table, the state
    let positions = table
        .as_chunks()
        .0
        .iter()
        .map(|&pointer| u32::from_le_bytes(pointer) as usize / 2)
        .collect();
    (positions, parts.into_inner())
}

fn by_hand(stream: &[u16]) -> Vec<usize> {
    let bytes: Vec<u8> = stream.iter().flat_map(|token| token.to_le_bytes()).collect();
    let mut positions: Vec<usize> = (0..stream.len()).collect();
    positions.sort_by_key(|&position| &bytes[2 * position..]);
    positions
}

/// Generates repetitive texts: a few pieces of few distinct tokens, concatenated many times.
fn stream() -> impl Strategy<Value = Vec<u16>> {
    let token = proptest::sample::select(vec![1_u16, 2, 256, 0xFFFF]);
    let piece = proptest::collection::vec(token, 1..60);
    let pieces = proptest::collection::vec(piece, 1..4);
    (pieces, proptest::collection::vec(0_usize..100, 1..30)).prop_map(|(pieces, order)| {
        order.into_iter().flat_map(|number| pieces[number % pieces.len()].clone()).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn block_sort_matches_naive_suffix_order(stream in stream(), words in 1_u64..6) {
        let (positions, _) = in_blocks(&stream, 64 * words);
        prop_assert_eq!(positions, by_hand(&stream));
    }
}

#[test]
fn single_token_stream_is_sorted_across_blocks() {
    // Every suffix is a prefix of another, and every comparison would run to the end of the text.
    let stream = vec![7_u16; 400_000];
    let (positions, parts) = in_blocks(&stream, 1 << 17);
    assert!(positions.iter().rev().copied().eq(0..stream.len()));
    // A block is halved if its matches are longer than half of it.
    assert!(parts > 4, "{parts}");
}

#[test]
fn duplicated_text_is_sorted_across_blocks() {
    let mut state = 1_u32;
    let half: Vec<u16> = (0..150_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 20) as u16
        })
        .collect();
    let stream = [&half[..], &half[..]].concat();
    let (positions, parts) = in_blocks(&stream, 100_032);
    assert_eq!(parts, 3);
    assert_eq!(positions, by_hand(&stream));
}

#[test]
fn full_u16_alphabet_is_sorted_across_blocks() {
    // All 65,536 tokens occur, so that there is no room for two more numbers.
    let stream: Vec<u16> =
        (0..200_000_u32).map(|position| (position.wrapping_mul(40_503) >> 3) as u16).collect();
    let (positions, parts) = in_blocks(&stream, 1 << 16);
    assert_eq!(parts, 4);
    assert_eq!(positions, by_hand(&stream));
}
