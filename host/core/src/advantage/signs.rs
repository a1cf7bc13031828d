//! Advantages that take the signs of labels, after they were made (FSPO).

/// A becomes −A where it and its token's label, 1 or −1, have opposite signs. A label of 0 changes
/// nothing. Both are `[B][T]`.
pub fn take_signs(advantages: &mut [Vec<f64>], labels: &[Vec<i8>]) {
    for (advantage, label) in advantages.iter_mut().flatten().zip(labels.iter().flatten()) {
        *advantage = signed(*advantage, *label);
    }
}

/// An advantage with the sign of its token's label.
#[must_use]
pub fn signed(advantage: f64, label: i8) -> f64 {
    if f64::from(label) * advantage < 0.0 { -advantage } else { advantage }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_decide_signs_and_not_sizes() {
        let mut advantages = vec![vec![0.5, 0.5, 0.5], vec![-2.0, -2.0, 0.0]];
        take_signs(&mut advantages, &[vec![1, -1, 0], vec![1, 0, -1]]);
        assert_eq!(advantages, [[0.5, -0.5, 0.5], [2.0, -2.0, 0.0]]);
    }
}
