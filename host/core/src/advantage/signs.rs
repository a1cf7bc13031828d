//! Advantages that take the signs of a rule (FSPO).

/// Sets the signs of the advantages of one completion, both `[T]`: see [`signed`].
pub fn take_signs(advantages: &mut [f64], signs: &[i8]) {
    for (advantage, sign) in advantages.iter_mut().zip(signs) {
        *advantage = signed(*advantage, *sign);
    }
}

/// Returns the advantage with this sign, 1 or −1; unchanged for 0.
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
