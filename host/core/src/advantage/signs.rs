//! Advantages that take the signs of labels, after they were made (FSPO).

/// Gives the advantages of one completion the signs of its tokens, both `[T]`: see [`signed`].
pub fn take_signs(advantages: &mut [f64], signs: &[i8]) {
    for (advantage, sign) in advantages.iter_mut().zip(signs) {
        *advantage = signed(*advantage, *sign);
    }
}

/// Returns the advantage with this sign, 1 or −1; with 0 it keeps its own.
#[must_use]
pub fn signed(advantage: f64, sign: i8) -> f64 {
    if f64::from(sign) * advantage < 0.0 { -advantage } else { advantage }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_set_advantage_sign_not_magnitude() {
        let mut advantages = [0.5, 0.5, 0.5, -2.0, -2.0, 0.0];
        take_signs(&mut advantages, &[1, -1, 0, 1, 0, -1]);
        assert_eq!(advantages, [0.5, -0.5, 0.5, 2.0, -2.0, 0.0]);
    }
}
