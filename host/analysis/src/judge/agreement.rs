//! Agreement of two judges beyond chance.

use corver_eval::interval::Z;
use serde::{Serialize, Serializer};

use super::{JudgeSubject, JudgedSubject};

/// Cohen's κ with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Kappa {
    /// κ: (observed − expected agreement) / (1 − expected agreement).
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Computes Cohen's κ of a table of counts; rows are one judge's labels, columns the other's. `None`
/// for an empty table, or if all labels are the same, which chance alone explains. The variance is
/// the large-sample one of Fleiss, Cohen and Everitt (1969).
#[must_use]
pub fn kappa<const K: usize>(table: &[[usize; K]; K]) -> Option<Kappa> {
    let total = table.iter().flatten().sum::<usize>() as f64;
    let share = |row: usize, column: usize| table[row][column] as f64 / total;
    let rows: [f64; K] = std::array::from_fn(|row| (0..K).map(|column| share(row, column)).sum());
    let columns: [f64; K] =
        std::array::from_fn(|column| (0..K).map(|row| share(row, column)).sum());
    let observed: f64 = (0..K).map(|label| share(label, label)).sum();
    let expected: f64 = (0..K).map(|label| rows[label] * columns[label]).sum();
    let not_expected = 1.0 - expected;
    if total == 0.0 || not_expected < 1e-12 {
        return None;
    }
    let value = (observed - expected) / not_expected;
    let miss = 1.0 - value;
    let mut agreed = 0.0;
    let mut disputed = 0.0;
    for row in 0..K {
        agreed += share(row, row) * (1.0 - (rows[row] + columns[row]) * miss).powi(2);
        for (column, row_total) in rows.iter().enumerate() {
            if column != row {
                disputed += share(row, column) * (columns[row] + row_total).powi(2);
            }
        }
    }
    let variance = (agreed + miss * miss * disputed - (value - expected * miss).powi(2))
        / (total * not_expected * not_expected);
    let half = Z * variance.max(0.0).sqrt();
    Some(Kappa { value, low: (value - half).max(-1.0), high: (value + half).min(1.0) })
}

/// Agreement of two judges on the items that both labelled.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JudgeAgreement<const K: usize> {
    /// Counts; rows are labels of the other judge, columns of the model, both in the given order.
    #[serde(serialize_with = "serialize_rows")]
    pub table: [[usize; K]; K],
    /// Share of items with the same label, 0 to 1; 0 without items.
    pub agreement: f64,
    /// Cohen's κ; `None` if it is undefined (see [`kappa`]).
    pub kappa: Option<Kappa>,
}

impl<const K: usize> JudgeAgreement<K> {
    /// Counts the labels of both judges, in the order of `labels`. Items with another label are
    /// left out.
    #[must_use]
    pub fn count<S: JudgeSubject>(labels: [S::Label; K], judged: &[JudgedSubject<'_, S>]) -> Self {
        let index_of = |label: S::Label| labels.iter().position(|known| *known == label);
        let mut table = [[0; K]; K];
        for (other, model) in judged.iter().filter_map(JudgedSubject::labels) {
            if let (Some(row), Some(column)) = (index_of(other), index_of(model)) {
                table[row][column] += 1;
            }
        }
        let same: usize = (0..K).map(|label| table[label][label]).sum();
        let labelled: usize = table.iter().flatten().sum();
        Self { table, agreement: same as f64 / labelled.max(1) as f64, kappa: kappa(&table) }
    }

    /// Returns the number of items in the table.
    #[must_use]
    pub fn labelled(&self) -> usize {
        self.table.iter().flatten().sum()
    }
}

/// Serialises the table row by row: serde does not implement arrays of generic length.
fn serialize_rows<const K: usize, S: Serializer>(
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
