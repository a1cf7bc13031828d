//! The inputs in `host/fuzz/seeds/damaged_index`, through the function that the fuzz target calls.
//! `make fuzz` looks for new ones.

#[path = "../../fuzz/fuzz_targets/damage.rs"]
mod damage;

use std::fs;
use std::path::Path;

#[test]
fn damaged_index_fuzz_seeds_never_panic() {
    let indexes = damage::Indexes::new();
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/damaged_index");
    let mut inputs = 0;
    for seed in fs::read_dir(seeds).unwrap() {
        indexes.damage(&fs::read(seed.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs >= 10, "{inputs}");
    // No change at all, and one of every kind to every file of every index, with its manifest and
    // without.
    for index in 0..9 {
        for flags in [0, 1] {
            indexes.damage(&[index, flags]);
            for change in 0..7 {
                for file in 0..17 {
                    indexes.damage(&[
                        index,
                        flags,
                        15,
                        1,
                        2,
                        3,
                        4,
                        2,
                        5,
                        9,
                        20,
                        change,
                        file,
                        13 * file,
                        0,
                        255,
                        3,
                        1,
                    ]);
                }
            }
        }
    }
}
