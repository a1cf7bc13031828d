//! Pages about calibration: truth by count, and truth by reward.

use corver_analysis::calibrate::{
    BucketShare, Calibration, CorrectShare, ReliabilityPoint, RuleAudit,
};
use maud::{Markup, html};

use crate::chart::{ChartLabels, ReliabilityBucket, reliability};
use crate::number;
use crate::page::{page, table};

/// Returns the page of a calibration by count. `names` are those of the number and of the share of
/// correct sentences, such as `correct` and `P(correct)`.
#[must_use]
pub fn calibration(calibration: &Calibration, names: [&str; 2]) -> String {
    let title = format!("{} by count", names[1]);
    let points: Vec<ReliabilityPoint> =
        calibration.buckets.iter().map(BucketShare::point).collect();
    let body = html! {
        h1 { "Calibration" }
        p.lead { (calibration.summary()) "." }
        @if calibration.by_model > 0 {
            p { "A model labelled " (calibration.by_model) " of the sentences." }
        }
        div.charts {
            (plot(&title, "co-occurrence count of a sentence's entities", &points))
        }
        (shares(names, &points))
    };
    page("Calibration", &body)
}

/// Returns the page of an audit: P(true) by count and by reward, for each rule.
#[must_use]
pub fn audit(rules: &[RuleAudit]) -> String {
    let figures: Vec<Vec<String>> = rules
        .iter()
        .map(|audit| {
            vec![
                audit.rule.clone(),
                number::percent(audit.abstained),
                number::short(audit.mean_true),
                number::short(audit.mean_false),
                audit.auc.to_string(),
                audit.auc_within_questions.map_or("–".to_owned(), |auc| auc.to_string()),
            ]
        })
        .collect();
    let header =
        ["rule", "abstains", "reward if true", "if false", "AUC (95 %)", "within a question"];
    let body = html! {
        h1 { "Rule audit" }
        p.lead { "Rewards of true and of false sentences, by rule" }
        (table(&header, &figures))
        @for audit in rules {
            h2 { (audit.rule) }
            p { (audit.summary()) "." }
            div.charts {
                @let by_count: Vec<ReliabilityPoint> = audit.by_count.iter().map(BucketShare::point).collect();
                (plot("P(true) by count", "the count that decided", &by_count))
                (plot("P(true) by reward", "reward", &audit.by_reward))
            }
        }
    };
    page("Rule audit", &body)
}

fn plot(title: &str, x: &str, points: &[ReliabilityPoint]) -> Markup {
    let mut buckets = Vec::new();
    for point in points {
        let CorrectShare { n, share, low, high, .. } = point.share;
        buckets.push(ReliabilityBucket {
            name: point.label.replace('-', "−"),
            count: n as usize,
            share: Some((share, (low, high))),
        });
    }
    reliability(ChartLabels { title, x, y: "with 95 % intervals" }, &buckets)
}

fn shares(names: [&str; 2], points: &[ReliabilityPoint]) -> Markup {
    let mut rows = Vec::new();
    for ReliabilityPoint { label, share } in points {
        rows.push(vec![
            label.replace('-', "−"),
            share.correct.to_string(),
            share.n.to_string(),
            number::percent(share.share),
            format!("{:.1} to {:.1}", 100.0 * share.low, 100.0 * share.high),
        ]);
    }
    table(&["count", names[0], "of", names[1], "95 %, per cent"], &rows)
}

#[cfg(test)]
mod tests {
    use corver_analysis::calibrate::{Auc, CountBuckets, Interval, SampleSize, ShareOrder};

    use super::*;

    fn buckets() -> Vec<BucketShare> {
        let shares = [(48, 200), (53, 100), (70, 100), (73, 100), (162, 200)];
        let bucket = |(bucket, (correct, n))| BucketShare {
            bucket,
            share: CorrectShare::of_independent(correct, n).unwrap(),
        };
        CountBuckets::default().iter().zip(shares).map(bucket).collect()
    }

    #[test]
    fn calibration_page_draws_bucket_table() {
        let calibration = Calibration {
            buckets: buckets(),
            order: ShareOrder::Rising,
            trend: None,
            unclear: 0,
            unlabelled: 0,
            by_model: 700,
            agreement: None,
        };
        let page = super::calibration(&calibration, ["correct", "P(correct)"]);
        for shown in ["<svg", "1–4", "24.0\u{a0}%", "75.0 to 85.8", "20+", "A model labelled 700"]
        {
            assert!(page.contains(shown), "no {shown:?} in\n{page}");
        }
        for shown in ["P(correct) by count", "<th>correct</th>", "<th>P(correct)</th>"] {
            assert!(page.contains(shown), "no {shown:?} in\n{page}");
        }
    }

    #[test]
    fn audit_page_draws_plots_per_rule() {
        let audit = |rule: &str| RuleAudit {
            rule: rule.to_owned(),
            sentences: 700,
            abstained: 0.0,
            mean_true: 0.05,
            mean_false: -0.2,
            evidence: SampleSize::default(),
            auc: Auc { value: 0.76, interval: Some(Interval { low: 0.72, high: 0.79 }) },
            auc_within_questions: None,
            rank_correlation: Some(0.5),
            by_count: buckets(),
            order: ShareOrder::Rising,
            uncounted: 0,
            by_reward: vec![ReliabilityPoint {
                label: "-0.300".into(),
                share: CorrectShare::of_independent(48, 200).unwrap(),
            }],
            of_abstained: None,
        };
        let page = super::audit(&[audit("first"), audit("<b>")]);
        assert_eq!(page.matches("role=\"img\"").count(), 4, "{page}");
        assert!(
            page.contains("first: a higher reward means a truer sentence")
                && page.contains("&lt;b&gt;"),
            "{page}"
        );
    }
}
