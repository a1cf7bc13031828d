//! How far two judges agree, beyond what they would by chance.

use serde::{Serialize, Serializer};

use super::{Judged, Subject};

/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Cohen's κ with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Kappa {
    /// (observed − expected) / (1 − expected).
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Cohen's κ of a table of counts; rows are one judge's labels, columns the other's. `None` where
/// nothing was judged, or all agree on one label: chance alone explains that. The variance is the
/// large-sample one of Fleiss, Cohen and Everitt (1969).
#[must_use]
pub fn kappa<const K: usize>(table: &[[usize; K]; K]) -> Option<Kappa> {
    let total = table.iter().flatten().sum::<usize>() as f64;
    let share = |row: usize, column: usize| table[row][column] as f64 / total;
    let rows: [f64; K] = std::array::from_fn(|row| (0..K).map(|column| share(row, column)).sum());
    let columns: [f64; K] =
        std::array::from_fn(|column| (0..K).map(|row| share(row, column)).sum());
    let observed: f64 = (0..K).map(|label| share(label, label)).sum();
    let expected: f64 = (0..K).map(|label| rows[label] * columns[label]).sum();
    let left = 1.0 - expected;
    if total == 0.0 || left < 1e-12 {
        return None;
    }
    let value = (observed - expected) / left;
    let miss = 1.0 - value;
    let agreed: f64 = (0..K)
        .map(|label| share(label, label) * (1.0 - (rows[label] + columns[label]) * miss).powi(2))
        .sum();
    let disputed: f64 = (0..K)
        .flat_map(|row| {
            (0..K).filter(move |&column| column != row).map(move |column| (row, column))
        })
        .map(|(row, column)| share(row, column) * (columns[row] + rows[column]).powi(2))
        .sum();
    let variance = (agreed + miss * miss * disputed - (value - expected * miss).powi(2))
        / (total * left * left);
    let half = Z * variance.max(0.0).sqrt();
    Some(Kappa { value, low: (value - half).max(-1.0), high: (value + half).min(1.0) })
}

/// Of what both judges labelled.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement<const K: usize> {
    /// Rows: the other judge; columns: the model; both in the order that was given.
    #[serde(serialize_with = "rows")]
    pub table: [[usize; K]; K],
    /// Share with the same label; 0 of none.
    pub agreement: f64,
    /// See [`kappa`].
    pub kappa: Option<Kappa>,
}

impl<const K: usize> Agreement<K> {
    /// Counts the labels of both, in the order of `labels`; what has another label from either is
    /// left out.
    #[must_use]
    pub fn of<S: Subject>(labels: [S::Label; K], judged: &[Judged<'_, S>]) -> Self {
        let place = |label: S::Label| labels.iter().position(|known| *known == label);
        let mut table = [[0; K]; K];
        for (other, model) in judged.iter().filter_map(Judged::labels) {
            if let Some((row, column)) = place(other).zip(place(model)) {
                table[row][column] += 1;
            }
        }
        let same: usize = (0..K).map(|label| table[label][label]).sum();
        let labelled: usize = table.iter().flatten().sum();
        Self { table, agreement: same as f64 / labelled.max(1) as f64, kappa: kappa(&table) }
    }

    /// How many have a label from both.
    #[must_use]
    pub fn labelled(&self) -> usize {
        self.table.iter().flatten().sum()
    }
}

/// serde knows arrays of a length that is known when it is built itself.
fn rows<const K: usize, S: Serializer>(
    table: &[[usize; K]; K],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(table.iter().map(<[usize; K]>::as_slice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(kappa: Kappa) -> [f64; 3] {
        [kappa.value, kappa.low, kappa.high].map(|value| (value * 1e4).round() / 1e4)
    }

    /// SAS/STAT's example of PROC FREQ: two dermatologists on 88 patients; κ 0.3449, 95 % 0.2030 to
    /// 0.4868.
    #[test]
    fn kappa_matches_published_table() {
        let patients = [[10, 4, 1, 0], [5, 10, 12, 2], [2, 4, 12, 5], [0, 2, 6, 13]];
        assert_eq!(rounded(kappa(&patients).unwrap()), [0.3449, 0.203, 0.4868]);
    }

    #[test]
    fn kappa_matches_hand_computed_values() {
        // Observed 0.7; expected 0.5 × 0.6 + 0.5 × 0.4 = 0.5.
        assert_eq!(rounded(kappa(&[[20, 5], [10, 15]]).unwrap())[0], 0.4);
        assert_eq!(rounded(kappa(&[[45, 15], [25, 15]]).unwrap())[0], 0.1304);
        assert_eq!(rounded(kappa(&[[25, 35], [5, 35]]).unwrap())[0], 0.2593);
        assert_eq!(rounded(kappa(&[[3, 0], [0, 4]]).unwrap()), [1.0, 1.0, 1.0]);
        assert_eq!(rounded(kappa(&[[0, 5], [5, 0]]).unwrap())[0], -1.0);
        assert_eq!((kappa(&[[0; 3]; 3]), kappa(&[[7, 0], [0, 0]])), (None, None));
    }
}
