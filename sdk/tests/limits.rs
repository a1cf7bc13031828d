//! The test kits in Python and JavaScript have the limits of the contract.

#[allow(dead_code, reason = "the kits check some of the limits")]
mod limits {
    include!("../wit/limits.rs");
}

#[test]
fn test_kits_have_the_limits_of_the_contract() {
    let kits = [include_str!("../python/corver_testing.py"), include_str!("../js/testing.js")];
    let expected = [
        ("ROUNDS", limits::ROUNDS as usize),
        ("REQUESTS_PER_SENTENCE", limits::REQUESTS_PER_SENTENCE),
        ("REQUESTS_PER_COMPLETION", limits::REQUESTS_PER_COMPLETION),
    ];
    for kit in kits {
        for (name, limit) in expected {
            let line = format!("{name} = {limit}");
            assert!(kit.lines().any(|text| text.trim_end_matches(';').ends_with(&line)), "{line}");
        }
    }
}
