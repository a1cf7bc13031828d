//! The figures of an evaluation: every table, comparison and page goes through [`FIGURES`].

use super::Evaluation;

/// Declaration of a figure of a `T`: its name, unit, meaning and value.
#[derive(Debug)]
pub struct Figure<T> {
    /// Key in JSON; with a dot where the value is a part of another.
    pub name: &'static str,
    /// Heading of a row or column.
    pub title: &'static str,
    /// Unit, which also decides the decimals.
    pub unit: FigureUnit,
    /// Direction of improvement. `None`: it does not make an arm better.
    pub better: Option<Direction>,
    /// Tables that have the figure.
    pub views: &'static [View],
    /// Definition of the figure, for documents.
    pub meaning: &'static str,
    /// Function that returns the value in the unit's base: shares from 0 to 1. `None`: not measured.
    pub get: fn(&T) -> Option<f64>,
}

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureUnit {
    /// Share; per cent with one decimal.
    Percent,
    /// Difference of two shares; percentage points with one decimal.
    Points,
    /// Tokens with one decimal.
    Tokens,
    /// Seconds with three decimals.
    Seconds,
    /// Any currency; as many decimals as the largest value needs.
    Money,
    /// Number of items, without decimals.
    Count,
    /// Number with this many decimals.
    Number(usize),
}

/// Direction in which a figure improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// A larger value is better.
    Up,
    /// A smaller value is better.
    Down,
}

/// A kind of table with its own figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// A run before and after training: `train`, `report`.
    Training,
    /// Policies on question sets: `eval`.
    Evaluation,
    /// Arms over several seeds: `compare`.
    Comparison,
}

use Direction::{Down, Up};
use FigureUnit::{Number, Percent, Tokens};
use View::{Comparison, Evaluation as Policies, Training};

type Entry = Figure<Evaluation>;

const ALL: &[View] = &[Training, Policies, Comparison];

/// Figures of an evaluation, in the order of tables.
pub const FIGURES: &[Figure<Evaluation>] = &[
    Entry::new("accuracy", "accuracy", Percent, |one| Some(one.accuracy))
        .better(Up)
        .means("correct answers"),
    Entry::new("supported_rate", "supported", Percent, |one| one.supported_rate)
        .means("of the sentences that a count decided, those whose entities occur together at all"),
    Entry::new("true_sentences", "true sentences", Number(2), |one| one.true_sentences)
        .better(Up)
        .means("true sentences of an answer"),
    Entry::new("false_sentences", "false sentences", Number(2), |one| one.false_sentences)
        .better(Down)
        .means("false sentences of an answer"),
    Entry::new("incorrect_rate", "incorrect", Percent, |one| Some(one.incorrect_rate))
        .views(&[Policies])
        .means("incorrect answers"),
    Entry::new("not_attempted_rate", "NA", Percent, |one| Some(one.not_attempted_rate))
        .views(&[Comparison])
        .means("questions without an answer: the next three together"),
    Entry::new("refusal_rate", "refusals", Percent, |one| Some(one.refusal_rate))
        .means("completions that refuse to answer"),
    Entry::new("cut_off_rate", "cut off", Percent, |one| Some(one.cut_off_rate))
        .views(&[Training, Policies])
        .means("completions cut off before an answer (`eval.answers.max_completion_length`)"),
    Entry::new("unformatted_rate", "no answer", Percent, |one| Some(one.unformatted_rate))
        .views(&[Training, Policies])
        .means("completions that ended without an answer block, or with one without words"),
    Entry::new("f1", "F1", Percent, |one| Some(one.f1))
        .views(&[Policies, Comparison])
        .means("harmonic mean of the accuracy and the share of right ones among the answers"),
    Entry::new("format_rate", "format", Percent, |one| Some(one.format_rate))
        .views(&[Policies, Comparison])
        .means("completions that follow the template"),
    Entry::new("mean_length", "length", Tokens, |one| Some(one.mean_length))
        .means("mean length of a completion"),
];

/// Note to the figures in [`FigureUnit::Number`] and [`FigureUnit::Tokens`].
pub const OF_AN_ANSWER: &str = "sentences and length are those of an answer";

/// Returns the figures of a view that at least one of the evaluations has.
#[must_use]
pub fn figures(view: View, evaluations: &[&Evaluation]) -> Vec<&'static Figure<Evaluation>> {
    let mut figures = Vec::new();
    for figure in FIGURES {
        let is_measured = evaluations.iter().any(|evaluation| (figure.get)(evaluation).is_some());
        if figure.views.contains(&view) && is_measured {
            figures.push(figure);
        }
    }
    figures
}

impl<T> Figure<T> {
    /// Returns a figure of every view, without a meaning and with no direction of improvement.
    #[must_use]
    pub const fn new(
        name: &'static str,
        title: &'static str,
        unit: FigureUnit,
        get: fn(&T) -> Option<f64>,
    ) -> Self {
        Self { name, title, unit, better: None, views: ALL, meaning: "", get }
    }

    /// Returns the figure with a direction of improvement.
    #[must_use]
    pub const fn better(self, direction: Direction) -> Self {
        Self { better: Some(direction), ..self }
    }

    /// Returns the figure with a meaning, for tables.
    #[must_use]
    pub const fn means(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }

    const fn views(self, views: &'static [View]) -> Self {
        Self { views, ..self }
    }

    /// Returns the value for `item` with its unit; a dash if there is none.
    #[must_use]
    pub fn written(&self, item: Option<&T>) -> String {
        let value = item.and_then(self.get);
        value.map_or_else(|| "–".to_owned(), |value| self.unit.written(value))
    }
}

impl FigureUnit {
    /// Returns the sign or word of the unit; empty for plain numbers.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Percent => "%",
            Self::Points => "points",
            Self::Tokens => "tokens",
            Self::Seconds => "s",
            Self::Money | Self::Count | Self::Number(_) => "",
        }
    }

    /// Returns the unit of a difference of two values: a difference of shares is in points.
    #[must_use]
    pub fn of_change(self) -> Self {
        if self == Self::Percent { Self::Points } else { self }
    }

    /// Returns a title with the unit, for a column of numbers.
    #[must_use]
    pub fn heading(self, title: &str) -> String {
        format!("{title}, {}", self.symbol()).trim_end_matches(", ").to_owned()
    }

    /// Returns a value without its unit.
    #[must_use]
    pub fn number(self, value: f64) -> String {
        match self {
            Self::Percent | Self::Points => format!("{:.1}", 100.0 * value),
            Self::Tokens => format!("{value:.1}"),
            Self::Seconds => format!("{value:.3}"),
            Self::Money | Self::Count => format!("{value:.0}"),
            Self::Number(decimals) => format!("{value:.decimals$}"),
        }
    }

    /// Returns a value with its unit.
    #[must_use]
    pub fn written(self, value: f64) -> String {
        format!("{} {}", self.number(value), self.symbol()).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn figure_name_matches_json_key() {
        let json = |evaluation: &Evaluation| serde_json::to_value(evaluation).unwrap();
        let filled = Evaluation {
            supported_rate: Some(0.5),
            true_sentences: Some(1.25),
            false_sentences: Some(0.75),
            ..Evaluation::default()
        };
        for (place, figure) in FIGURES.iter().enumerate() {
            assert_eq!(
                json(&filled)[figure.name].as_f64(),
                (figure.get)(&filled),
                "{}",
                figure.name
            );
            // Each differs from all others.
            let mut changed = json(&filled);
            changed[figure.name] = Value::from(9.0 + place as f64);
            let changed: Evaluation = serde_json::from_value(changed).unwrap();
            assert_eq!((figure.get)(&changed), Some(9.0 + place as f64), "{}", figure.name);
            assert!(!figure.meaning.is_empty(), "{}", figure.name);
        }
    }

    #[test]
    fn figures_show_units_and_omit_missing_values() {
        let one = Evaluation { accuracy: 0.5625, mean_length: 24.8, ..Evaluation::default() };
        let shown = figures(Training, &[&one]);
        let written: Vec<String> = shown.iter().map(|figure| figure.written(Some(&one))).collect();
        assert_eq!(written, ["56.2 %", "0.0 %", "0.0 %", "0.0 %", "24.8 tokens"]);
        assert_eq!(shown[0].written(None), "–");
    }
}
